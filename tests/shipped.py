"""Models of data packages, without which treelm's own tests pass: those that need one are skipped."""

from __future__ import annotations

import pytest

from treelm.models.persistence.shipped import missing_models


def need(*names: str) -> None:
    """Skip the test unless these models are installed."""
    missing = missing_models()
    for name in names:
        if name in missing:
            pytest.skip(f"needs {name}: {missing[name]}")
