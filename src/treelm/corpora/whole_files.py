"""Files that are read whole: those of runs and settings, which are regular files, and inputs, which may be pipes."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from treelm.errors import InputError

_DESCRIPTORS = ("/dev/fd/", "/dev/stdin", "/proc/self/fd/")  # what a shell has opened: <(command), or a pipe


def read_bytes(path: Path, *, remedy: str, may_be_pipe: bool = False) -> bytes:
    """A file's content, or ``InputError`` with the remedy when it cannot be read, or is a pipe and may not be one."""
    if not may_be_pipe:
        require_regular(path, remedy=remedy)
    with _told(path, remedy):
        return path.read_bytes()


def file_hash(path: Path, *, remedy: str) -> str:
    """SHA-256 of a file's content, which may be larger than memory, or ``InputError`` when it cannot be read."""
    with _told(path, remedy), path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def _told(path: Path, remedy: str) -> Iterator[None]:
    """Turn what the system says into an ``InputError``."""
    try:
        yield
    except FileNotFoundError:
        raise InputError("no such file", where=str(path), remedy=remedy) from None
    except OSError as error:
        raise InputError(f"cannot be read ({error.strerror})", where=str(path), remedy=remedy) from None
    except ValueError as error:  # a NUL character
        raise InputError(f"not a path ({error})", where=repr(str(path)), remedy=remedy) from None


def require_regular(path: Path, *, remedy: str) -> None:
    """Raise ``InputError`` for a pipe or a device: one may never end or never begin, the other may fill the memory.

    What a shell has opened for this process is no danger. Folders and missing files are told where they are opened.
    """
    if str(path).startswith(_DESCRIPTORS) or not os.path.exists(path) or path.is_dir():
        return
    if not path.is_file():
        raise InputError("no regular file", where=str(path), remedy=remedy)
