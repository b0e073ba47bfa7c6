"""One process at a time trains in a run folder."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path

from treelm.models.locks import hold_folder


def lock_folder(folder: Path) -> AbstractContextManager[None]:
    """Hold a run folder, made if need be, for the block; raises ``InputError`` while another process holds it."""
    return hold_folder(
        folder,
        found="another process is training in this folder",
        remedy="wait for it or end it, or give another run folder",
    )
