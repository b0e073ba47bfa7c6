"""One process at a time trains in a run folder."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from treelm.errors import InputError


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Hold a folder, made if need be, for the block; raises ``InputError`` while another process holds it.

    The operating system gives it back when a process ends, however it ends. Systems without ``flock`` have no lock.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if sys.platform == "win32":
        yield
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        _acquire(descriptor, folder)
        yield
    finally:
        os.close(descriptor)


def _acquire(descriptor: int, folder: Path) -> None:
    import fcntl

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        remedy = "wait for it or end it, or give another run folder"
        raise InputError("another process is training in this folder", where=str(folder), remedy=remedy) from None
