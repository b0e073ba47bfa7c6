"""The training loop."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import perf_counter

from treelm.errors import InputError
from treelm.models.base import LanguageModel
from treelm.training.checkpoints import Checkpoints, lock_folder
from treelm.training.config import TrainingConfig
from treelm.training.data import Batch, Batches, read_epoch
from treelm.training.dev import DevTrees
from treelm.training.metrics import LossSum
from treelm.training.numerics import numerics
from treelm.training.outcomes import TrainingInterrupted
from treelm.training.ranks import Ranks
from treelm.training.recipe import Recipe
from treelm.training.session import Session
from treelm.training.signals import stop_on_signals

_STDERR = 2
_AFTER_BAR = "\n\x1b[?25h"  # a progress bar has hidden the cursor
_logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Step:
    """One update of the weights, and the loss, norm and evaluation that belong to it."""

    step: int  # updates so far
    epoch: int  # complete passes so far
    step_in_epoch: int
    seconds: float  # of training so far, over all resumed parts
    cpu_seconds: float  # processor time of updates so far
    loss: LossSum  # of this batch, with dropout
    gradient_norm: float  # before clipping
    learning_rate: float
    dev: LossSum | None  # if dev was evaluated after this step
    is_best: bool  # whether the model in the run folder is now this one
    stopped_because: str | None  # if this is the last step


def fit(
    model: LanguageModel,
    batches: Batches,
    dev: Iterable[Batch] | None,
    config: TrainingConfig,
    run_directory: Path | str,
    *,
    resume: bool = False,
    dev_trees: DevTrees | None = None,
    ranks: Ranks | None = None,
    recipe: Recipe | None = None,
) -> Iterator[Step]:
    """Train a model; a generator that makes one step each time it is asked for one::

        for step in fit(model, batches, dev, config, "runs/first"):
            if step.is_best:
                print(step.epoch, step.dev.nats_per_word)

    The minimised loss is ``model.losses(batch).total``, a sum in nats, divided by the batch's words or sentences
    (``config.normalise_loss``). ``dev`` is evaluated by the same total, per word, without dropout; the best model on
    it is in ``run_directory`` (without dev, the last; with ``select_by = "unlabeled_f1"``, the one whose trees agree
    best with ``dev_trees``). A checkpoint is there from the start. With ``resume``, a run
    goes on from its newest checkpoint as if it had never stopped: the same weights bit for bit, given the same machine
    and number of threads, and no use of the global random generators by the caller.

    Started by torchrun, srun or ``treelm train --devices``, every process calls this with the same arguments, and each
    gets all steps; only the first one writes. ``ranks`` is for callers that have connected already.
    ``recipe``, if there is one, is kept in every checkpoint and compared when the run is resumed.

    Raises ``InputError`` when the run cannot begin or resume, ``NonFiniteError`` before a bad update,
    ``TrainingInterrupted`` after SIGINT, SIGTERM, SIGHUP or SIGUSR1, when the step is finished and saved, and
    ``ProcessLost`` when another process is gone. Another SIGINT ends the process at once, with a line that says which
    checkpoint stays.
    """
    ranks = ranks or Ranks.connect(config)
    with ExitStack() as stack:
        ranks.on_main(lambda: stack.enter_context(lock_folder(Path(run_directory))))
        yield from fit_locked(
            model, batches, dev, config, run_directory, resume=resume, dev_trees=dev_trees, ranks=ranks, recipe=recipe
        )


def fit_locked(
    model: LanguageModel,
    batches: Batches,
    dev: Iterable[Batch] | None,
    config: TrainingConfig,
    run_directory: Path | str,
    *,
    resume: bool,
    dev_trees: DevTrees | None,
    ranks: Ranks,
    recipe: Recipe | None,
) -> Iterator[Step]:
    """Train as ``fit`` does, for a caller whose first process holds the run folder by ``lock_folder``.

    Raises ``InputError`` if dev trees are given and not needed, or the reverse.
    """
    if dev is None:
        check_without_dev(config)
    if (config.select_by == "unlabeled_f1") != (dev_trees is not None):
        raise InputError(
            f"select_by = {config.select_by!r} and dev trees", remedy="give dev_trees exactly when it needs them"
        )
    run = Path(run_directory)
    with ExitStack() as stack:
        stack.enter_context(numerics(config))
        stop = stack.enter_context(stop_on_signals(partial(_say_what_stays, run, ranks)))
        session = Session(model, batches, config, run, resume=resume, dev_trees=dev_trees, ranks=ranks, recipe=recipe)
        reason = session.state.reason_to_stop(config)
        if reason is not None and ranks.is_main:
            _logger.warning("nothing left to do in %s: %s", run, reason)
        while reason is None:
            for reading in read_epoch(batches):
                loss, gradient_norm = session.update(reading, stop)
                evaluate_by_plan = session.evaluation_is_due(ends_epoch=reading.ends_epoch)
                reason = session.state.reason_to_stop(config)
                session.log(force=evaluate_by_plan or reason is not None)
                dev_loss, is_best = None, False
                if evaluate_by_plan or reason is not None:
                    dev_loss, is_best = session.evaluate(dev, by_plan=evaluate_by_plan)
                    reason = reason or session.state.reason_to_stop(config)
                interrupted_by = session.interrupted_by(stop.signal_name)
                if reason or interrupted_by or session.checkpoint_is_due(ends_epoch=reading.ends_epoch):
                    session.save()
                paused = perf_counter()
                yield Step(
                    step=session.state.step,
                    epoch=session.state.epoch,
                    step_in_epoch=session.state.step_in_epoch,
                    seconds=session.state.seconds,
                    cpu_seconds=session.state.cpu_seconds,
                    loss=loss,
                    gradient_norm=gradient_norm,
                    learning_rate=session.learning_rate,
                    dev=dev_loss,
                    is_best=is_best,
                    stopped_because=reason,
                )
                session.leave_out(perf_counter() - paused)
                if reason:  # a signal in the last step changes nothing: the run is finished
                    break
                if interrupted_by:
                    raise TrainingInterrupted(interrupted_by, session.state.step)


def _say_what_stays(run: Path, ranks: Ranks) -> None:
    """One line for all processes, when another signal ends them at once."""
    if not ranks.is_main:
        return
    saved = Checkpoints(run / "checkpoints", keep=1).paths()
    stays = f"{saved[-1]} stays; resume to continue from it" if saved else "there is no checkpoint yet"
    line = f"treelm train: another SIGINT has ended this at once: {stays}\n"
    os.write(_STDERR, (_AFTER_BAR * os.isatty(_STDERR) + line).encode())  # the main thread may hold sys.stderr


def check_without_dev(config: TrainingConfig) -> None:
    """Raise ``InputError`` for what follows from dev losses."""
    wants_dev = {
        "stop_after": config.stop_after is not None,
        'schedule = "plateau"': config.schedule == "plateau",
        'optimizer = "nt-asgd"': config.optimizer == "nt-asgd",
        'select_by = "unlabeled_f1"': config.select_by == "unlabeled_f1",
    }
    for name, wants in wants_dev.items():
        if wants:
            raise InputError(f"{name} without dev data", remedy="give dev data, or leave it out")
