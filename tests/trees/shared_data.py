"""Larger corpora beside the repository, for tests that skip where they are absent."""

import gzip
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2].parent / "shared" / "data"


def shared_lines(name: str) -> list[str]:
    """The lines of a gzipped file, or skip."""
    path = FOLDER / name
    if not path.exists():
        pytest.skip(f"{path} is absent")
    with gzip.open(path, "rt", encoding="utf-8", newline="\n") as file:
        return list(file)
