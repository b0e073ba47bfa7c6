"""Every test of training has a cache of its own, and knows the toy system."""

from __future__ import annotations

from pathlib import Path

import pytest

from treelm.models import SYSTEMS


@pytest.fixture(autouse=True)
def own_world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TREELM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setitem(SYSTEMS, "toy", "tests.training.toys:ToyLM")
