"""What a person sees of a training run; separate from the loop, which is silent."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from treelm.training.config import TrainingConfig
from treelm.training.loop import Step
from treelm.training.updates import LossSum, perplexity


def show_progress(
    steps: Iterator[Step], config: TrainingConfig, *, steps_per_epoch: int | None = None, stream: TextIO | None = None
) -> Iterator[Step]:
    """Pass steps on and show them on ``stream`` (standard error): a bar in a terminal, and one line an evaluation.

    In a file or a pipe there is no bar, only the lines.
    """
    stream = stream or sys.stderr
    console = Console(file=stream)
    bar = Progress(
        TextColumn("epoch {task.fields[epoch]}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[figures]}"),
        TimeRemainingColumn(),
        console=console,
        disable=not console.is_terminal,
        transient=True,
    )
    since = LossSum()
    with bar:
        task = bar.add_task("training", total=_total_steps(config, steps_per_epoch), epoch=1, figures="")
        for step in steps:
            since.merge(step.loss)
            bar.update(task, completed=step.step, epoch=step.epoch + 1, figures=_figures(step))
            if step.dev is not None:
                console.print(describe(step, since), markup=False, highlight=False, soft_wrap=True)
                since = LossSum()
            yield step


def describe(step: Step, train: LossSum) -> str:
    """One line about an evaluation; ``train`` is the loss since the one before it."""
    parts = [
        f"epoch {step.epoch}",
        f"step {step.step}",
        f"{step.seconds:.0f} s",
        f"train {_loss(train.nats_per_word)}",
    ]
    if step.dev is not None:
        parts.append(f"dev {_loss(step.dev.nats_per_word)}")
    if step.is_best:
        parts.append("best so far")
    if step.stopped_because:
        parts.append(f"end: {step.stopped_because}")
    return " · ".join(parts)


def _loss(nats_per_word: float) -> str:
    return f"{nats_per_word:.4f} nats/word (loss perplexity {perplexity(nats_per_word):.1f})"


def _figures(step: Step) -> str:
    return f"loss {step.loss.nats_per_word:.3f} nats/word, learning rate {step.learning_rate:.2g}"


def _total_steps(config: TrainingConfig, steps_per_epoch: int | None) -> int | None:
    """The step at which the run ends by plan, as far as it is known beforehand."""
    by_epochs = steps_per_epoch * config.epochs if steps_per_epoch and config.epochs else None
    return min((total for total in (by_epochs, config.max_steps) if total is not None), default=None)
