"""Hostile files for every reader: ``python -m tests.fuzz`` runs many cases, the tests here run some."""
