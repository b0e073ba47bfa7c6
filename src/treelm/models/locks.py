"""One process at a time in a folder."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from treelm.errors import InputError


@contextmanager
def hold_folder(folder: Path, *, found: str, remedy: str) -> Iterator[None]:
    """Hold a folder, made if need be, for the block; while another process holds it, ``InputError`` says so.

    A folder that was made for this and is empty at the end goes. The operating system gives a folder back when a
    process ends, however it ends. Systems without ``flock`` have no lock.
    """
    is_new = not folder.exists()
    descriptor = _acquire(folder, InputError(found, where=str(folder), remedy=remedy))
    try:
        yield
    finally:
        if is_new:
            with suppress(OSError):
                folder.rmdir()
        if descriptor is not None:
            os.close(descriptor)


def _acquire(folder: Path, problem: InputError) -> int | None:
    """The descriptor that holds a folder: until it is closed, nobody else gets one."""
    if sys.platform == "win32":
        folder.mkdir(parents=True, exist_ok=True)
        return None
    import fcntl

    while True:
        folder.mkdir(parents=True, exist_ok=True)
        with suppress(FileNotFoundError):  # another process has just removed it
            descriptor, is_held = os.open(folder, os.O_RDONLY), False
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                is_held = os.path.samestat(os.fstat(descriptor), folder.stat())
            except BlockingIOError:
                raise problem from None
            finally:
                if not is_held:
                    os.close(descriptor)
            if is_held:
                return descriptor
