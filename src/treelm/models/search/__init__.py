"""Inference with generative parsers: beam search, particle filter, and reading word by word, on any ``Machine``."""
