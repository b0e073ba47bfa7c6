"""The old name of ``treelm.models.persistence.storage``: deprecated, and gone with the release after the next."""

from __future__ import annotations

import warnings
from typing import Any

from treelm.models.persistence import storage


def __getattr__(name: str) -> Any:
    """Give what has moved, with a ``DeprecationWarning``."""
    found = getattr(storage, "NARROWED" if name == "KEY" else name)
    warnings.warn(f"treelm.models.storage is now {storage.__name__}", DeprecationWarning, stacklevel=2)
    return found
