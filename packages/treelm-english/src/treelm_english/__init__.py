"""Corpora and models for treelm, which finds them here: no code of its own."""
