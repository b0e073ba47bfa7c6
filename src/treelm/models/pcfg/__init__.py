"""Probabilistic context-free grammars as exact, incremental language models."""
