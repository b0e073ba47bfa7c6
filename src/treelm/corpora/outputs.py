"""Output files and folders: made under names that nobody else has, and renamed into place when they are complete."""

from __future__ import annotations

import errno
import json
import math
import os
import secrets
import shutil
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import platformdirs

from treelm.errors import InputError

CACHE_VARIABLE = "TREELM_CACHE"
_ABANDONED = 7 * 24 * 3600.0  # seconds without a write to a folder that is being made
_OF_WRITING = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}


def cache_directory() -> Path:
    """The directory of downloads and prepared corpora: ``TREELM_CACHE``, else the user's cache directory."""
    given = os.environ.get(CACHE_VARIABLE)
    return Path(given).expanduser() if given else Path(platformdirs.user_cache_dir("treelm"))


def check_place(path: Path | str, *, instead: str = "", to_come: Path | None = None) -> None:
    """Raise ``InputError`` for a file to write that has no folder, or is one: before any work is done for it.

    ``instead`` is what else may be done; the folder ``to_come`` is one that will be made before the file is.
    """
    folder = Path(path).parent
    is_to_come = to_come is not None and folder.resolve() == to_come.resolve()
    if not is_to_come and not folder.is_dir():
        raise InputError(f"no folder {folder}", remedy=f"make it first{instead}")
    if Path(path).is_dir():
        raise InputError("a folder", where=str(path), remedy=f"give the name of a file{instead}")


@contextmanager
def replacing(path: Path, mode: str = "wb", **options: Any) -> Iterator[IO[Any]]:
    """A new file, opened with mode and options, that takes the place of ``path`` if the block ends without an error.

    Until then it has a hidden name, and is never a file or link that was there before, so what is written goes nowhere
    else.
    """
    new = _hidden(path)
    with _naming_instead(path, new):
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o666)
        try:
            with naming(path), os.fdopen(descriptor, mode, **options) as file:
                yield file
            new.replace(path)
        finally:
            new.unlink(missing_ok=True)


@contextmanager
def making_folder(path: Path) -> Iterator[Path]:
    """A new folder to fill, which is called ``path`` when the block has ended without an error, and else goes.

    It goes, too, if another process has been faster and has made the same.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    new = _hidden(path)
    with _naming_instead(path, new):
        new.mkdir()
        try:
            yield new
            try:
                new.rename(path)
            except OSError:
                if not path.exists():
                    raise
        finally:
            shutil.rmtree(new, ignore_errors=True)


def remove_abandoned(place: Path) -> None:
    """Remove what processes that were killed have left of making folders in this place, which is treelm's own.

    Nothing else says on every file system that the process is gone: nobody has written to it for a week.
    """
    for left in place.glob(".*"):
        with suppress(OSError):  # no folder; or it is complete now; or another process removes it, too
            if time.time() - max(path.stat().st_mtime for path in (left, *left.iterdir())) > _ABANDONED:
                shutil.rmtree(left)


def _hidden(path: Path) -> Path:
    """A name in the same folder that nobody can foresee."""
    return path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")


@contextmanager
def _naming_instead(path: Path, new: Path) -> Iterator[None]:
    """Name ``path`` in errors of ``new``, of which nobody knows."""
    try:
        yield
    except OSError as error:
        if error.filename is not None and Path(error.filename).is_relative_to(new):
            error.filename, error.filename2 = str(path / Path(error.filename).relative_to(new)), None
        raise


def json_text(values: Any, *, indent: int | None = 2, ascii_only: bool = False) -> str:
    """JSON of values, in order; null stands for what is not finite, as in ``finite``."""
    return json.dumps(finite(values), ensure_ascii=ascii_only, indent=indent, allow_nan=False)


def finite(value: Any) -> Any:
    """The values of JSON with None for numbers that it has no form for: what is infinite, and what is no number.

    >>> finite({"bits": [1.5, float("inf")]})
    {'bits': [1.5, None]}
    """
    if isinstance(value, Mapping):
        return {key: finite(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [finite(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


@contextmanager
def suppress_hangup() -> Iterator[None]:
    """Let nothing come of writing to people who have left: what is under way is not to be lost with them.

    Their terminal may be closed, of a pipe the reader (a viewer of logs, ``tee``, ``head``) may have ended, and the
    disk of a log may be full.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in (*_OF_WRITING, errno.EPIPE):
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
