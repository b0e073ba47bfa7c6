"""Progress of a training run on the terminal: a bar, or lines. The training loop itself prints nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, TextIO

from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from treelm.io.terminal import notes, stderr_console
from treelm.training.config import TrainingConfig
from treelm.training.metrics import LossSum, perplexity

if TYPE_CHECKING:
    from treelm.training.trainer import Step


@contextmanager
def progress(
    config: TrainingConfig, steps_per_epoch: int, *, evaluates: bool = True, stream: TextIO | None = None
) -> Iterator[Callable[[Step], None]]:
    """Give a function that shows a step on ``stream`` (standard error): a bar in a terminal, and a line an evaluation.

    Without dev data (``evaluates`` is false) the end of each epoch has a line instead. In a file or a pipe there is no
    bar, but a line now and then where these lines are far apart.
    """
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
