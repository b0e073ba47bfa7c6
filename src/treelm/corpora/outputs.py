"""Output files: made under names that nobody else has, and renamed into place when they are complete."""

from __future__ import annotations

import errno
import os
import secrets
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import platformdirs

CACHE_VARIABLE = "TREELM_CACHE"
_OF_WRITING = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}


def cache_directory() -> Path:
    """The directory of downloads and prepared corpora: ``TREELM_CACHE``, else the user's cache directory."""
    given = os.environ.get(CACHE_VARIABLE)
    return Path(given).expanduser() if given else Path(platformdirs.user_cache_dir("treelm"))


def create_beside(path: Path) -> tuple[Path, int]:
    """A new file of a hidden name in the same folder that nobody can foresee, open for writing, and its descriptor.

    It is never a file or link that was there before, so what is written goes nowhere else.
    """
    new = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    return new, os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o666)


@contextmanager
def replacing(path: Path, mode: str = "wb", **options: Any) -> Iterator[IO[Any]]:
    """A new file, opened with mode and options, that takes the place of ``path`` if the block ends without an error."""
    new, descriptor = create_beside(path)
    try:
        with naming(path), os.fdopen(descriptor, mode, **options) as file:
            yield file
        new.replace(path)
    finally:
        new.unlink(missing_ok=True)


@contextmanager
def suppress_hangup() -> Iterator[None]:
    """Let nothing come of writing to people who have left: what is under way is not to be lost with them.

    Their terminal may be closed, and of a pipe the reader (a viewer of logs, ``tee``, ``head``) may have ended.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.EIO, errno.EPIPE):
            raise


def note(message: str) -> None:
    """Tell people something on standard error, if they are still there."""
    with suppress_hangup():
        print(message, file=sys.stderr)


@contextmanager
def naming(path: Path | str) -> Iterator[None]:
    """Name the file in errors of writing it: the system does so in opening it, but not when the disk is full."""
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno in _OF_WRITING:
            error.filename = str(path)
        raise
