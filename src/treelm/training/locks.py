"""Which folder a run may have: one process at a time trains in it, and never over what was trained there."""

from __future__ import annotations

import unicodedata
from contextlib import AbstractContextManager
from pathlib import Path

from treelm.errors import InputError
from treelm.models.locks import hold_folder
from treelm.models.storage import WEIGHTS
from treelm.training.checkpoints import FOLDER, Checkpoints

RESUME = "resume it, or give another run folder"


def lock_folder(folder: Path) -> AbstractContextManager[None]:
    """Hold a run folder, made if need be, for the block; raises ``InputError`` while another process holds it."""
    return hold_folder(
        folder,
        found="another process is training in this folder",
        remedy="wait for it or end it, or give another run folder",
    )


def check_name(name: str) -> None:
    """Raise ``InputError`` for the name of a run with a line end or another control character: it breaks tables."""
    if any(unicodedata.category(character) in ("Cc", "Zl", "Zp") for character in name):
        raise InputError("a name with a line end or another control character", where=name, remedy="rename the folder")


def check_new_run(folder: Path) -> None:
    """Raise ``InputError`` if a new run in this folder would write over checkpoints or a model, or has no good name."""
    check_name(folder.resolve().name)
    if Checkpoints(folder / FOLDER, keep=1).paths():
        raise InputError("this folder already holds a run", where=str(folder), remedy=RESUME)
    if (folder / WEIGHTS).exists():
        raise InputError("this folder already holds a model", where=str(folder), remedy="give another run folder")
