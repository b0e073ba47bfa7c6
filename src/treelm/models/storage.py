"""The old name of ``treelm.models.persistence.storage``: deprecated, and gone with the release after the next."""

from __future__ import annotations

from typing import Any

from treelm.deprecation import warn_renamed
from treelm.models.persistence import storage


def __getattr__(name: str) -> Any:
    """Give what has moved, with a ``DeprecationWarning``."""
    found = getattr(storage, "NARROWED" if name == "KEY" else name)
    warn_renamed(__name__, storage.__name__)
    return found
