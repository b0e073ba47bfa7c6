"""Losses added up, and where they are shown: ``metrics.jsonl``, one JSON object a line, and the terminal.

When a run is resumed, the file is cut back to the checkpoint, so that no step stands there twice. The training loop
itself prints nothing.
"""

from __future__ import annotations

import json
import logging
import math
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import torch
from torch import Tensor

from treelm.errors import InputError
from treelm.io.atomic import path_in_errors
from treelm.io.files import read_bytes
from treelm.io.json import json_text
from treelm.io.terminal import notes, stderr_console
from treelm.models.base import Losses

if TYPE_CHECKING:
    from treelm.training.config import TrainingConfig
    from treelm.training.trainer import Step

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


@contextmanager
def progress(
    config: TrainingConfig, steps_per_epoch: int, *, evaluates: bool = True, stream: TextIO | None = None
) -> Iterator[Callable[[Step], None]]:
    """Give a function that shows a step on ``stream`` (standard error): a bar in a terminal, and a line an evaluation.

    Without dev data (``evaluates`` is false) the end of each epoch has a line instead. In a file or a pipe there is no
    bar, but a line now and then where these lines are far apart.
    """
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    console = stderr_console(stream)
    bar = Progress(
        TextColumn("epoch {task.fields[epoch]}"),
        BarColumn(),
        TextColumn("{task.percentage:3.0f}%"),
        TextColumn("{task.fields[metrics]}"),
        TimeRemainingColumn(),
        console=console,
        disable=not console.is_terminal,
        transient=True,
    )
    task = bar.add_task("training", total=1.0, epoch=1, metrics="")
    since, note = LossSum(), notes()

    def show(step: Step) -> None:
        nonlocal since
        since.merge(step.loss)
        done = fraction_done(step, config, steps_per_epoch)
        rate = f"learning rate {step.learning_rate:.2g}"
        metrics = f"step {step.step}, loss {step.loss.nats_per_word:.3f} nats/word, {rate}"
        bar.update(task, completed=done, epoch=step.epoch + 1, metrics=metrics)
        is_end = step.step_in_epoch == 0 or step.stopped_because is not None
        if step.dev is not None or (is_end and not evaluates):
            console.print(describe(step, since), markup=False, highlight=False, soft_wrap=True)
            since = LossSum()
        elif not console.is_terminal:
            note(f"training: {metrics}")

    with bar if console.is_terminal else nullcontext():  # older releases of rich end even a disabled bar by a line
        yield show


def describe(step: Step, train: LossSum) -> str:
    """One line about an evaluation; ``train`` is the loss since the one before it."""
    parts = [f"epoch {step.epoch}", f"step {step.step}", f"{step.seconds:.0f} s", f"train {_loss(train)}"]
    if step.dev is not None:
        parts.append(f"dev {_loss(step.dev)}")
        parts += ["best so far"] if step.is_best else []
    if step.stopped_because:
        parts.append(f"end: {step.stopped_because}")
    return " · ".join(parts)


def _loss(loss: LossSum) -> str:
    """The loss; its perplexity is one of words only where nothing else is in it, such as brackets."""
    of_words = f" (loss perplexity {perplexity(loss.nats_per_word):.1f})" if loss.terms.keys() == {"word"} else ""
    return f"{loss.nats_per_word:.4f} nats/word{of_words}"


def fraction_done(step: Step, config: TrainingConfig, steps_per_epoch: int | None) -> float:
    """Fraction of the run that is over, by whichever limit is nearest; early stopping may end it before."""
    if step.stopped_because:
        return 1.0
    limits = (
        (config.epochs, step.epoch + (step.step_in_epoch / steps_per_epoch if steps_per_epoch else 0.0)),
        (config.max_steps, step.step),
        (config.max_minutes, step.seconds / 60),
        (config.max_cpu_minutes, step.cpu_seconds / 60),
    )
    return min(1.0, max(done / limit for limit, done in limits if limit is not None))
