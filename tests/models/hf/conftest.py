"""Models of other people for the tests of this folder."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import treelm  # noqa: F401
from tests.models.hf.worlds import write
from treelm import load


@pytest.fixture(scope="session")
def folder_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Each model, written once."""
    return cache(lambda name: write(name, tmp_path_factory.mktemp("models") / name))


@pytest.fixture
def folder(name: str, folder_of: Callable[[str], Path]) -> Path:
    return folder_of(name)


@pytest.fixture
def lm(folder: Path) -> Any:
    return load(f"hf:{folder}")
