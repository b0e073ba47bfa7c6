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
    folder.mkdir(parents=True, exist_ok=True)
    if sys.platform == "win32":
        return None
    import fcntl

    while True:
        with suppress(FileNotFoundError):  # another process has just removed it
            descriptor = os.open(folder, os.O_RDONLY)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.path.samestat(os.fstat(descriptor), folder.stat()):
                    return descriptor
            except BlockingIOError:
                os.close(descriptor)
                raise problem from None
            except BaseException:
                os.close(descriptor)
                raise
            os.close(descriptor)
        folder.mkdir(parents=True, exist_ok=True)
