"""Inference with an RNNG: beam search, particle filter, and reading word by word, on an arena of persistent stacks."""
