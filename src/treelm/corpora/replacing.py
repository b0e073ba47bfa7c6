"""New files under names that nobody else has, to be renamed into place when they are complete."""

from __future__ import annotations

import os
import secrets
from pathlib import Path


def name_beside(path: Path) -> Path:
    """A hidden name in the same folder that starts like ``path`` and that nobody can foresee."""
    return path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")


def create_beside(path: Path) -> tuple[Path, int]:
    """A new file with such a name, open for writing, and its descriptor.

    It is never a file or link that was there before, so what is written goes nowhere else.
    """
    new = name_beside(path)
    return new, os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o666)
