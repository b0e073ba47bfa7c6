"""``metrics.jsonl``: one JSON object a line, cut back on resume so that no step stands there twice."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import TracebackType
from typing import Any

FILE_NAME = "metrics.jsonl"


class MetricsLog:
    """Appends lines to ``metrics.jsonl``; a context manager."""

    def __init__(self, path: Path, *, offset: int = 0) -> None:
        """Open the file and drop what stands behind ``offset`` (bytes): it belongs to steps that are made again."""
        path.touch()
        self._file = path.open("r+b")
        self._file.truncate(min(offset, path.stat().st_size))
        self._file.seek(0, os.SEEK_END)

    def __enter__(self) -> MetricsLog:
        """The log itself."""
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        """Close the file."""
        self._file.close()

    def write(self, values: dict[str, Any]) -> None:
        """Append one line; readers see it at once."""
        self._file.write(json.dumps(values, ensure_ascii=False).encode() + b"\n")
        self._file.flush()

    def flush_to_disk(self) -> int:
        """Wait until the disk has every line; returns the length in bytes."""
        self._file.flush()
        os.fsync(self._file.fileno())
        return self._file.tell()
