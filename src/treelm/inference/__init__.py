"""Uses of a trained model: loading, surprisal, parsing, annotation, generation."""
