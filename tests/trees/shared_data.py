"""Larger corpora beside the repository, for tests that skip where they are absent."""

from pathlib import Path

FOLDER = Path(__file__).parents[2].parent / "shared" / "data"
