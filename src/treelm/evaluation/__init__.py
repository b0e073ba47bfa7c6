"""Perplexity, bracketing, audits."""
