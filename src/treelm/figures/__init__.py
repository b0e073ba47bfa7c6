"""Pictures: trees, surprisal, tables."""
