"""One process at a time trains in a run folder, and never over what was trained there."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path

from treelm.errors import InputError
from treelm.models.persistence.files import hold_folder
from treelm.models.persistence.storage import WEIGHTS
from treelm.training.checkpoints import FOLDER, Checkpoints

RESUME = "resume it, or give another run folder"


def lock_folder(folder: Path) -> AbstractContextManager[None]:
    """Hold a run folder, made if need be, for the block; raises ``InputError`` while another process holds it."""
    return hold_folder(
        folder,
        found="another process is training in this folder",
        remedy="wait for it or end it, or give another run folder",
    )


def check_nothing_trained(folder: Path) -> None:
    """Raise ``InputError`` if a new run in this folder would write over checkpoints or a model."""
    if Checkpoints(folder / FOLDER, keep=1).paths():
        raise InputError("this folder already holds a run", where=str(folder), remedy=RESUME)
    if (folder / WEIGHTS).exists():
        raise InputError("this folder already holds a model", where=str(folder), remedy="give another run folder")
