"""Atomic files and directories: written under hidden names and renamed when complete; locked folders."""

from __future__ import annotations

import errno
import os
import secrets
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from treelm.errors import InputError

WRITE_ERRORS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})
"""Errors of the system in writing to a file that is open: a full disk, a quota, a limit, a fault of the device."""


def check_output_path(path: Path | str, *, instead: str = "", to_come: Path | None = None) -> None:
    """Raise ``InputError`` for a file to write that is a folder, or whose folder does not exist or is read-only.

    Call this before any work. ``instead`` ends the remedy with what else the user can do. ``to_come`` is a folder that
    will be made before the file.
    """
    folder = Path(path).parent
    is_to_come = to_come is not None and folder.resolve() == to_come.resolve()
    if not is_to_come and not folder.is_dir():
        raise InputError(f"no folder {folder}", remedy=f"make it first{instead}")
    if Path(path).is_dir():
        raise InputError("a folder", where=str(path), remedy=f"give the name of a file{instead}")
    present = next(one for one in (folder, *folder.absolute().parents) if one.exists())
    is_device = Path(path).exists() and not Path(path).is_file()  # which is written where it is
    if not is_device and not os.access(present, os.W_OK):
        remedy = f"change its permissions or write elsewhere{instead}"
        raise InputError("a folder that cannot be written", where=str(present), remedy=remedy)


@contextmanager
def open_atomic(path: Path, mode: str = "wb", **options: Any) -> Iterator[IO[Any]]:
    """Open a new file, with mode and options, that takes the place of ``path`` if the block ends without an error.

    Until then it has a hidden name, and is never a file or link that existed before, so that nothing is written
    elsewhere.
    """
    new = _hidden(path)
    with _path_instead_of(path, new):
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o666)
        try:
            with path_in_errors(path), os.fdopen(descriptor, mode, **options) as file:
                yield file
            new.replace(path)
        finally:
            new.unlink(missing_ok=True)


@contextmanager
def atomic_directory(path: Path) -> Iterator[Path]:
    """Give a new folder to fill, which is called ``path`` when the block ends without an error.

    It is removed after an error, and also if another process has made ``path`` in the meantime.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    new = _hidden(path)
    with _path_instead_of(path, new):
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


def write_atomically(path: Path, content: bytes) -> None:
    """Replace a file: write beside it, flush to disk, rename. A crash leaves either the old file or the new one.

    A device or a pipe is written to, as a file in its place would end it.
    """
    if path.exists() and not path.is_file() and not path.is_dir():
        with path_in_errors(path):
            path.write_bytes(content)
        return
    with open_atomic(path) as file:
        _write_durably(file, content)
    flush_directory(path.parent)


def write_durably(path: Path, content: bytes) -> None:
    """Write a file and wait until the disk has it."""
    with path_in_errors(path), path.open("wb") as file:
        _write_durably(file, content)


def _write_durably(file: IO[bytes], content: bytes) -> None:
    file.write(content)
    file.flush()
    os.fsync(file.fileno())


def flush_directory(path: Path) -> None:
    """Wait until the disk has the names in a directory."""
    if os.name == "nt":  # Windows cannot open directories
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _hidden(path: Path) -> Path:
    """A name in the same folder that nobody can foresee."""
    return path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")


@contextmanager
def _path_instead_of(path: Path, new: Path) -> Iterator[None]:
    """Name ``path`` in errors of ``new``, of which nobody knows."""
    try:
        yield
    except OSError as error:
        if error.filename is not None and Path(error.filename).is_relative_to(new):
            error.filename, error.filename2 = str(path / Path(error.filename).relative_to(new)), None
        raise


@contextmanager
def path_in_errors(path: Path | str) -> Iterator[None]:
    """Name the file in errors of writing it: the system does so in opening it, but not when the disk is full."""
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno in WRITE_ERRORS:
            error.filename = str(path)
        raise


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
