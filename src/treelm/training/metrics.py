"""Losses added up, and ``metrics.jsonl``, which holds them, one JSON object a line.

When a run is resumed, the file is cut back to the checkpoint, so that no step stands there twice.
"""

from __future__ import annotations

import json
import logging
import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from treelm.errors import InputError
from treelm.io.atomic import path_in_errors
from treelm.io.files import read_bytes
from treelm.io.json import json_text
from treelm.models.base import Losses

FILE_NAME = "metrics.jsonl"
_logger = logging.getLogger(__name__)


@dataclass
class LossSum:
    """Losses added up over batches, in nats, with what they are counted over."""

    total: float = 0.0
    num_words: int = 0
    num_sentences: int = 0
    terms: dict[str, list[float]] = field(default_factory=dict)  # name -> [sum, count]

    @classmethod
    def read(cls, parts: Sequence[Losses], *others: Tensor) -> tuple[list[LossSum], list[float]]:
        """The losses of some batches, and other numbers, brought from their device at once: it is waited for."""
        tensors = [tensor for one in parts for tensor in (one.total, *(term.sum for term in one.terms.values()))]
        numbers = torch.stack([tensor.detach().double() for tensor in (*tensors, *others)]).tolist()
        values, sums = iter(numbers), list[LossSum]()
        for one in parts:
            total, counts = next(values), {name: term.count for name, term in one.terms.items()}
            terms = {name: [next(values), count] for name, count in counts.items()}
            sums.append(cls(total, one.num_words, one.num_sentences, terms))
        return sums, list(values)

    def merge(self, other: LossSum) -> None:
        """Add what another sum holds."""
        self.total += other.total
        self.num_words += other.num_words
        self.num_sentences += other.num_sentences
        for name, (value, count) in other.terms.items():
            before = self.terms.get(name, [0.0, 0])
            self.terms[name] = [before[0] + value, before[1] + count]

    @classmethod
    def sum(cls, losses: Iterable[LossSum]) -> LossSum:
        """The sum of all of them, added up in this order."""
        total = cls()
        for loss in losses:
            total.merge(loss)
        return total

    @property
    def nats_per_word(self) -> float:
        """The loss that training minimises, for each word."""
        return self.total / self.num_words if self.num_words else math.nan

    def named(self) -> dict[str, float]:
        """Metrics under the names that ``metrics.jsonl`` gives them."""
        terms = {f"{name}_nats_per_decision": total / count for name, (total, count) in self.terms.items() if count}
        per_word = self.nats_per_word
        return {"loss_nats_per_word": per_word, "loss_perplexity_per_word": perplexity(per_word), **terms}


def perplexity(nats_per_word: float) -> float:
    """exp of a loss; infinite where a float cannot hold it."""
    return math.exp(nats_per_word) if nats_per_word < 700 else math.inf


class MetricsLog:
    """Appends lines to ``metrics.jsonl``; between lines the file is closed."""

    def __init__(self, path: Path, *, offset: int = 0) -> None:
        """Drop what stands behind ``offset`` (bytes), because it belongs to steps that will be made again.

        A missing log is begun again, with a warning. Raises ``InputError`` for a log that is shorter: it is another
        run's.
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
        """Append one line; readers see it at once. JSON has no infinity: a value that is not finite becomes null."""
        with path_in_errors(self._path), self._path.open("ab") as file:
            file.write(f"{json_text(values, indent=None)}\n".encode())

    def flush_to_disk(self) -> int:
        """Wait until the disk has every line; returns the length in bytes."""
        with path_in_errors(self._path), self._path.open("ab") as file:
            os.fsync(file.fileno())
            return file.tell()


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The lines of ``metrics.jsonl``. Raises ``InputError`` with file and line for one that is not a JSON object.

    A last line that is incomplete is left out: the program was stopped there, or is just writing it.
    """
    found = []
    lines = read_bytes(path, remedy="give a run folder", most=math.inf).split(b"\n")
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
