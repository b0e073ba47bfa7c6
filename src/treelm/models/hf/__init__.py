"""Causal language models of the Hugging Face ecosystem, scored by words: read from their folders, never trained."""
