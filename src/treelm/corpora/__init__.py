"""Where sentences come from: readers, vocabularies, prepared corpora, batches."""
