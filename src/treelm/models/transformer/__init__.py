"""Decoder-only Transformer language models, plain or taught trees by a second loss."""
