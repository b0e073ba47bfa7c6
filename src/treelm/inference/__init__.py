"""What users do with a trained model: load, surprisal, parsing, generation."""
