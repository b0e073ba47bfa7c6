"""A flag, an export, a column or a key that changes is seen before it is released."""

import difflib
from pathlib import Path

import pytest

from tests.surface.collect import HERE, SNAPSHOTS, collect


@pytest.mark.parametrize("name", SNAPSHOTS)
def test_the_public_surface_is_as_it_was_written_down(name: str, tmp_path: Path) -> None:
    kept = (HERE / name).read_text(encoding="utf-8").splitlines()
    found = collect(name, tmp_path).splitlines()
    changes = [
        line for line in difflib.unified_diff(kept, found, "kept", "found", lineterm="", n=0) if line[:2] != "@@"
    ]
    assert not changes, "\n".join([*changes, "if this is meant: make snapshots, and commit the difference"])
