"""What a syntax tree is. Plain Python and NumPy: nothing here imports torch."""
