"""Sentences: readers, vocabularies, prepared corpora, batches."""
