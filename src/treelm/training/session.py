"""A run in progress: model, optimiser, state, log and checkpoints, held together so that the loop can be read."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

from torch import Tensor

from treelm.errors import InputError
from treelm.models.base import SyntacticLM
from treelm.models.configs import to_plain
from treelm.models.storage import describe_model, remove_leftovers, save_model
from treelm.models.streams import Carried
from treelm.training.checkpoints import Checkpoint, Checkpoints
from treelm.training.config import TrainingConfig
from treelm.training.data import Batch, Batches, Reading
from treelm.training.metrics import FILE_NAME, MetricsLog
from treelm.training.numerics import build_fabric, describe_machine
from treelm.training.outcomes import NonFiniteError
from treelm.training.randomness import random_state, restore_random_state, seed_everything
from treelm.training.selection import DevTrees
from treelm.training.state import Interval, TrainingState, check_unchanged, restore_weights
from treelm.training.stepping import Stepping
from treelm.training.updates import LossSum, check_finite, evaluate, make_update

_logger = logging.getLogger(__name__)


class Session:
    """Everything that ``fit`` works with."""

    def __init__(
        self,
        model: SyntacticLM,
        batches: Batches,
        config: TrainingConfig,
        run_directory: Path,
        *,
        resume: bool,
        dev_trees: DevTrees | None = None,
    ) -> None:
        """Set up a new run, or restore the newest checkpoint of an old one."""
        self.model, self.config, self.run_directory = model, config, run_directory
        self._batches = batches
        self._dev_trees = dev_trees
        self._checkpoints = Checkpoints(run_directory / "checkpoints", keep=config.keep_checkpoints)
        checkpoint = self._find_checkpoint(resume=resume)
        remove_leftovers(run_directory)
        self._fabric = build_fabric(config)
        self.state = TrainingState()
        if checkpoint is not None:
            self.state = TrainingState.from_json(checkpoint.values["state"])
        self._stepping = Stepping(model, config, self.state)
        self._fabric.setup(model, self._stepping.optimizer)
        self._carried: Carried | None = None  # of a stream
        self._clock = perf_counter()
        self._saved_after = 0.0  # seconds of training at the last checkpoint
        if checkpoint is None:
            self._begin()
        else:
            self._restore(checkpoint)
        model.train()

    def _find_checkpoint(self, *, resume: bool) -> Checkpoint | None:
        if resume:
            return self._checkpoints.newest()
        if self._checkpoints.paths():
            remedy = "resume it, or give another run folder"
            raise InputError("this folder already holds a run", where=str(self.run_directory), remedy=remedy)
        return None

    def _begin(self) -> None:
        seed_everything(self.config.seed)
        self._stepping.begin()
        self.state.position = self._batches.state()
        self._metrics = MetricsLog(self.run_directory / FILE_NAME)
        self.save()

    def _restore(self, checkpoint: Checkpoint) -> None:
        where = str(self._checkpoints.directory)
        present = to_plain(self.config)
        saved = {**to_plain(TrainingConfig()), **checkpoint.values["training"]}  # a newer field had its default
        check_unchanged(saved, present, what="training", where=where)
        check_unchanged(checkpoint.values["model"], describe_model(self.model), what="model", where=where)
        self._compare_machine(checkpoint.values["machine"])
        restore_weights(self.model, checkpoint.tensors["weights"], where=where)
        self._stepping.restore(checkpoint.tensors, where=where)
        if "carried" in checkpoint.tensors:
            device = self._fabric.device
            self._carried = {name: tensor.to(device) for name, tensor in checkpoint.tensors["carried"].items()}
        self._saved_after = self.state.seconds
        self._batches.restore(self.state.position)
        self._metrics = MetricsLog(self.run_directory / FILE_NAME, offset=self.state.metrics_bytes)
        restore_random_state(checkpoint.tensors["random"], checkpoint.values["random"])

    def _compare_machine(self, before: Mapping[str, Any]) -> None:
        for name, value in describe_machine(self._fabric).items():
            if value != before.get(name):
                message = "%s = %s now, but the run had %s: it goes on, but not bit for bit"
                _logger.warning(message, name, value, before.get(name))

    def update(self, reading: Reading) -> tuple[LossSum, float]:
        """One step: returns its loss and the norm of the gradient."""
        state, config = self.state, self.config
        begin, cpu_begin = perf_counter(), process_time()
        self._stepping.before(reading.batch)
        optimizer, number = self._stepping.optimizer, state.step + 1
        loss, norm, self._carried = make_update(
            self._fabric, self.model, optimizer, reading.batch, config, number, carried=self._carried
        )
        state.step = number
        self._stepping.after()
        state.step_in_epoch += 1
        state.position = reading.position
        if reading.ends_epoch:
            state.epoch, state.step_in_epoch = state.epoch + 1, 0
        state.interval.loss.merge(loss)
        state.interval.gradient_norm += norm
        state.interval.num_steps += 1
        state.interval.seconds += perf_counter() - begin
        state.cpu_seconds += process_time() - cpu_begin
        self._tick()
        return loss, norm

    def evaluation_is_due(self, *, ends_epoch: bool) -> bool:
        """Whether dev is evaluated after this step by plan."""
        every = self.config.evaluate_every_steps
        return ends_epoch if every is None else self.state.step % every == 0

    def evaluate(self, dev: Iterable[Batch] | None, *, by_plan: bool) -> tuple[LossSum | None, bool]:
        """Score dev; returns the loss and whether it is the best so far. The best model is saved to the run folder.

        Without dev, the present model is saved. Schedule and early stopping see planned evaluations only, so that a
        run that was extended is the same as one that was long from the start. Where weights are averaged, what is
        scored and saved has their means.
        """
        with self._stepping.averages.in_place(self.model):
            return self._evaluate(dev, by_plan=by_plan)

    def _evaluate(self, dev: Iterable[Batch] | None, *, by_plan: bool) -> tuple[LossSum | None, bool]:
        if dev is None:
            self._save_best()
            return None, True
        begin = perf_counter()
        loss = self._score(dev)
        state, value = self.state, loss.nats_per_word
        f1 = None if self._dev_trees is None else self._dev_trees.unlabeled_f1(self.model)
        is_best = state.is_best(value, f1)
        if is_best:
            self._save_best()
        if by_plan:
            state.learning_rate.observe(value, self.config)
            state.early_stopping.observe(value)
            state.averaging.observe(value, state.step, self.config)
        self._tick()
        figures = {**loss.named(), "is_best": is_best, "seconds": perf_counter() - begin}
        if f1 is not None:
            figures["unlabeled_f1"] = f1
        if self._stepping.averages.num_steps:
            figures["num_averaged_steps"] = self._stepping.averages.num_steps
        self._write("dev", figures)
        return loss, is_best

    def _score(self, dev: Iterable[Batch]) -> LossSum:
        loss = evaluate(self._fabric, self.model, dev, self.config)
        if not loss.num_words:
            raise InputError("the dev data gives no words", remedy="check [data]: are all sentences filtered out?")
        if not math.isfinite(loss.nats_per_word):
            raise NonFiniteError(f"the dev loss is {loss.nats_per_word}", step=self.state.step)
        return loss

    def _save_best(self) -> None:
        check_finite(self.model, step=self.state.step)
        save_model(self.model, self.run_directory)

    @property
    def learning_rate(self) -> float:
        """Of the last update."""
        return self._stepping.learning_rate

    def log(self, *, force: bool) -> None:
        """Write the averages of an interval when it is full, or when something else is about to be logged."""
        interval, state = self.state.interval, self.state
        if not interval.num_steps or not (force or interval.num_steps >= self.config.log_every_steps):
            return
        figures = {
            **interval.loss.named(),
            "gradient_norm": interval.gradient_norm / interval.num_steps,
            "learning_rate": self.learning_rate,
            "num_steps": interval.num_steps,
            "num_words": interval.loss.num_words,
            "num_sentences": interval.loss.num_sentences,
            "words_per_second": interval.loss.num_words / interval.seconds,
            "sentences_per_second": interval.loss.num_sentences / interval.seconds,
        }
        state.interval = Interval()
        self._write("train", figures)

    def checkpoint_is_due(self, *, ends_epoch: bool) -> bool:
        """Whether the state is saved after this step by plan."""
        steps, minutes = self.config.checkpoint_every_steps, self.config.checkpoint_every_minutes
        by_steps = steps is not None and self.state.step % steps == 0
        by_minutes = minutes is not None and self.state.seconds - self._saved_after >= 60 * minutes
        return ends_epoch or by_steps or by_minutes

    def save(self) -> None:
        """Write a checkpoint of everything that the rest of the run depends on."""
        check_finite(self.model, step=self.state.step)
        self._tick()
        self.state.metrics_bytes = self._metrics.flush_to_disk()
        random_tensors, random_values = random_state()
        tensors: dict[str, Mapping[str, Tensor]] = {
            "weights": self.model.state_dict(),
            "random": random_tensors,
            **self._stepping.tensors(),
        }
        if self._carried is not None:
            tensors["carried"] = self._carried
        values = {
            "state": self.state.to_json(),
            "training": to_plain(self.config),
            "model": describe_model(self.model),
            "machine": describe_machine(self._fabric),
            "random": random_values,
        }
        self._checkpoints.save(self.state.step, Checkpoint(tensors=tensors, values=values))
        self._saved_after = self.state.seconds

    def _write(self, kind: str, figures: dict[str, Any]) -> None:
        state = self.state
        where = {"kind": kind, "step": state.step, "epoch": state.epoch, "elapsed_seconds": state.seconds}
        where["cpu_seconds"] = state.cpu_seconds
        self._metrics.write({**where, **figures})

    def _tick(self) -> None:
        now = perf_counter()
        self.state.seconds += now - self._clock
        self._clock = now
