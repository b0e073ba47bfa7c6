"""``metrics.jsonl``: one JSON object a line, cut back on resume so that no step stands there twice."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path
from typing import Any

from treelm.corpora.inputs import read_bytes
from treelm.corpora.outputs import naming
from treelm.errors import InputError

FILE_NAME = "metrics.jsonl"
_logger = logging.getLogger(__name__)


class MetricsLog:
    """Appends lines to ``metrics.jsonl``; between lines the file is closed."""

    def __init__(self, path: Path, *, offset: int = 0) -> None:
        """Drop what stands behind ``offset`` (bytes): it belongs to steps that are made again.

        A log that is gone begins anew, with a warning; one that is shorter is another run's, and an ``InputError``.
        """
        self._path = path
        if offset and not path.exists():
            _logger.warning("%s is gone: a new log begins, without the steps so far", path)
            offset = 0
        path.touch()
        size = path.stat().st_size
        if size < offset:
            found = f"{size} bytes, but the checkpoint says metrics_bytes = {offset}"
            remedy = "restore the log of this run, or move it away to go on with a new one"
            raise InputError(found, where=str(path), remedy=remedy)
        os.truncate(path, offset)

    def write(self, values: dict[str, Any]) -> None:
        """Append one line; readers see it at once."""
        with naming(self._path), self._path.open("ab") as file:
            file.write(json.dumps(values, ensure_ascii=False).encode() + b"\n")

    def flush_to_disk(self) -> int:
        """Wait until the disk has every line; returns the length in bytes."""
        with naming(self._path), self._path.open("ab") as file:
            os.fsync(file.fileno())
            return file.tell()


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The lines of ``metrics.jsonl``; raises ``InputError`` with file and line for one that is no JSON object.

    A last line that was not written to its end is left out: the program was stopped there, or is writing it now.
    """
    found = []
    lines = read_bytes(path, remedy="give a run folder").split(b"\n")
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            values = json.loads(line.decode("utf-8"))  # of bytes, json would take half characters and other encodings
        except (ValueError, RecursionError):
            if number == len(lines):
                break
            values = None
        if not isinstance(values, dict):
            raise InputError("not a JSON object", where=f"{path}:{number}", remedy="remove this line of the log")
        found.append(values)
    return found
