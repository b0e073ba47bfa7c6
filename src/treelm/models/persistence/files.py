"""Atomic files and locked folders, and JSON with a hash of its own values, which tells whether it is whole."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from treelm.corpora.outputs import json_text, naming, replacing
from treelm.errors import InputError

_SEAL = "sha256"


def write_atomically(path: Path, content: bytes) -> None:
    """Replace a file: write beside it, flush to disk, rename. A crash leaves the old file or the new one.

    A device or a pipe is written to: a file in its place would end it.
    """
    if path.exists() and not path.is_file() and not path.is_dir():
        with naming(path):
            path.write_bytes(content)
        return
    with replacing(path) as file:
        _write_durably(file, content)
    flush_directory(path.parent)


def write_durably(path: Path, content: bytes) -> None:
    """Write a file and wait until the disk has it."""
    with naming(path), path.open("wb") as file:
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


def encode_json(values: Mapping[str, Any]) -> bytes:
    """JSON as we write it: UTF-8, indented, order kept; null stands for what is not finite."""
    return f"{json_text(values)}\n".encode()


def json_hash(values: Any) -> str:
    """SHA-256, hexadecimal, of values as JSON with sorted keys: the same however a file is laid out."""
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def sealed(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values with their hash."""
    written = json.loads(json_text(values))  # as it will be read again: its keys are strings
    return {**written, _SEAL: json_hash(written)}


def unsealed(values: Any) -> dict[str, Any] | None:
    """The values without their hash; None if they are not those that were sealed."""
    if not isinstance(values, dict):
        return None
    content = {name: value for name, value in values.items() if name != _SEAL}
    return content if values.get(_SEAL) == json_hash(content) else None


def sealed_line(values: Mapping[str, Any]) -> bytes:
    """One line of a file of JSON lines, with its hash and its end."""
    return f"{json_text(sealed(values), indent=None, ascii_only=True)}\n".encode()


def unsealed_line(line: bytes) -> dict[str, Any] | None:
    """The values of a line; None if it is not whole, or not as it was written."""
    try:
        return unsealed(json.loads(line.decode())) if line.endswith(b"\n") else None
    except (ValueError, RecursionError):
        return None


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
