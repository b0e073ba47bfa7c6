"""One process at a time in a folder."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from treelm.errors import InputError


@contextmanager
def hold_folder(folder: Path, *, found: str, remedy: str) -> Iterator[None]:
    """Hold a folder, made if need be, for the block; while another process holds it, ``InputError`` says so.

    The operating system gives it back when a process ends, however it ends. Systems without ``flock`` have no lock.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if sys.platform == "win32":
        yield
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        _acquire(descriptor, InputError(found, where=str(folder), remedy=remedy))
        yield
    finally:
        os.close(descriptor)


def _acquire(descriptor: int, problem: InputError) -> None:
    import fcntl

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise problem from None
