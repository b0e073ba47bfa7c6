"""Drawings and tables for terminal, pages and papers: trees, distances, memory, attention, comparisons."""
