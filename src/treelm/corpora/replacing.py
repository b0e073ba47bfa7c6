"""New files under names that nobody else has, to be renamed into place when they are complete."""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_OF_WRITING = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}


def name_beside(path: Path) -> Path:
    """A hidden name in the same folder that starts like ``path`` and that nobody can foresee."""
    return path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")


def create_beside(path: Path) -> tuple[Path, int]:
    """A new file with such a name, open for writing, and its descriptor.

    It is never a file or link that was there before, so what is written goes nowhere else.
    """
    new = name_beside(path)
    return new, os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o666)


@contextmanager
def suppress_hangup() -> Iterator[None]:
    """Let nothing come of writing to a terminal that was closed: what is under way is not to be lost with it."""
    try:
        yield
    except OSError as error:
        if error.errno != errno.EIO:
            raise


@contextmanager
def naming(path: Path | str) -> Iterator[None]:
    """Name the file in errors of writing it: the system does so in opening it, but not when the disk is full."""
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno in _OF_WRITING:
            error.filename = str(path)
        raise
