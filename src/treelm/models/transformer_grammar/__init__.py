"""Transformer Grammars and their relatives: joint models of sentence and tree by attention."""
