"""Syntax trees. Plain Python and NumPy: nothing here imports torch."""
