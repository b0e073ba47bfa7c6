"""Files and directories that are either there in full or not there at all."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from treelm.corpora.outputs import create_beside, naming


def write_atomically(path: Path, content: bytes) -> None:
    """Replace a file: write beside it, flush to disk, rename. A crash leaves the old file or the new one.

    A device or a pipe is written to: a file in its place would end it.
    """
    if path.exists() and not path.is_file() and not path.is_dir():
        with naming(path):
            path.write_bytes(content)
        return
    temporary, descriptor = create_beside(path)
    try:
        _write_durably(path, descriptor, content)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    flush_directory(path.parent)


def write_durably(path: Path, content: bytes) -> None:
    """Write a file and wait until the disk has it."""
    _write_durably(
        path, os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_BINARY", 0), 0o666), content
    )


def _write_durably(path: Path, descriptor: int, content: bytes) -> None:
    with naming(path), os.fdopen(descriptor, "wb") as file:
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
    """JSON as we write it: UTF-8, indented, order kept."""
    return (json.dumps(values, ensure_ascii=False, indent=2) + "\n").encode()
