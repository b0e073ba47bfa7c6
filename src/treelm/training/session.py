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
from treelm.models.base import LanguageModel
from treelm.models.configs import plain_defaults, to_plain
from treelm.models.persistence.storage import describe_model, remove_leftovers, save_model
from treelm.models.readings import Carried
from treelm.training.checkpoints import FOLDER, Checkpoint, Checkpoints, check_new_run
from treelm.training.config import TrainingConfig, without_removed
from treelm.training.data import Batch, Batches, PositionedBatch, shard_rows
from treelm.training.dev import DevTrees, evaluate
from treelm.training.metrics import FILE_NAME, LossSum, MetricsLog
from treelm.training.numerics import describe_machine, random_state, restore_random_state, seed_everything
from treelm.training.optimizers import Stepping
from treelm.training.origins import check_origin, origin_files
from treelm.training.outcomes import NonFiniteError
from treelm.training.parts import ShardStates, join_rows
from treelm.training.ranks import Ranks
from treelm.training.recipe import Recipe
from treelm.training.signals import StopRequest
from treelm.training.state import Interval, TrainingState, check_unchanged, read_state, restore_weights
from treelm.training.updates import check_finite, check_graphs, check_shards, count_shards, make_update

_logger = logging.getLogger(__name__)


class Session:
    """Model, optimiser, data and counters of a training run, with the operations that ``fit`` calls in turn."""

    def __init__(
        self,
        model: LanguageModel,
        batches: Batches,
        config: TrainingConfig,
        run_directory: Path,
        *,
        resume: bool,
        dev_trees: DevTrees | None = None,
        ranks: Ranks | None = None,
        recipe: Recipe | None = None,
    ) -> None:
        """Set up a new run, or restore the newest checkpoint of an old one."""
        self._ranks = ranks = ranks or Ranks.connect(config)
        self.model, self.config, self.run_directory = model, config, run_directory
        self._batches = batches
        self._dev_trees = dev_trees
        self._recipe, self._files = recipe, origin_files(model, recipe)
        self._checkpoints = Checkpoints(run_directory / FOLDER, keep=config.keep_checkpoints)
        check_shards(model, config, ranks)
        check_graphs(model, config, ranks.fabric.device)
        checkpoint = ranks.on_main(lambda: self._find_checkpoint(resume=resume))
        self._fabric = ranks.fabric
        self._metrics: MetricsLog | None = None  # of the first process
        self.state = TrainingState()
        if checkpoint is not None:
            self.state = read_state(checkpoint)
        self._stepping = Stepping(model, config, self.state)
        self._fabric.setup(model, self._stepping.optimizer)
        self._carried: ShardStates = {}  # hidden states of a stream
        self._batch: Batch | None = None  # of the last update
        self._signal: str | None = None  # that some process has got
        self._clock = perf_counter()
        self._saved_after = 0.0  # seconds of training at the last checkpoint
        if checkpoint is None:
            self._begin()
        else:
            self._restore(checkpoint)
        model.train()

    def _find_checkpoint(self, *, resume: bool) -> Checkpoint | None:
        checkpoint = self._checkpoints.newest() if resume else None
        if checkpoint is None:  # resuming too begins anew if it was ended before the first one
            check_new_run(self.run_directory)
        remove_leftovers(self.run_directory)
        return checkpoint

    def _begin(self) -> None:
        seed_everything(self.config.seed)
        self._stepping.begin()
        self.state.position = self._batches.state()
        self._ranks.same_weights(self.model)
        self._open_log(0)
        self.save()

    def _restore(self, checkpoint: Checkpoint) -> None:
        where = checkpoint.where
        check_origin(checkpoint, self.model, self._recipe, self.run_directory, says=self._ranks.is_main)
        present = to_plain(self.config)
        own = without_removed(checkpoint.table("training"))
        saved = {**to_plain(TrainingConfig()), **own}  # a newer field had its default
        check_unchanged(saved, present, what="training", where=where)
        networks = (checkpoint.table("model"), describe_model(self.model))
        before, now = ({**network, "data_identity": None} for network in networks)  # that was compared already
        if isinstance(before.get("config"), dict):
            before["config"] = {**plain_defaults(type(self.model.config)), **before["config"]}  # as above
        check_unchanged(before, now, what="model", where=where)
        self._compare_machine(checkpoint.table("machine"))
        restore_weights(self.model, checkpoint.file("weights"), where=where)
        self._stepping.restore(checkpoint)
        if self.config.batches == "stream" and self.state.step:
            self._carried = self._own_rows(checkpoint.file("carried"))
        self._saved_after = self.state.seconds
        self._restore_position(where)
        self._open_log(self.state.metrics_bytes)
        restore_random_state(checkpoint.file("random"), checkpoint.table("random"), where=where)

    def _restore_position(self, where: str) -> None:
        try:
            self._batches.restore(self.state.position)
        except InputError as error:
            raise InputError(error.found, where=error.where or f"{where} state position", remedy=error.remedy) from None

    def _open_log(self, num_bytes: int) -> None:
        if self._ranks.is_main:
            self._metrics = MetricsLog(self.run_directory / FILE_NAME, offset=num_bytes)

    def _own_rows(self, carried: Mapping[str, Tensor]) -> ShardStates:
        """Hidden states of this process' shards, cut from those of all rows."""
        found: ShardStates = {}
        num_shards = count_shards(self.config, self._ranks)
        num_rows = max(map(len, carried.values()), default=0)  # without memory nothing is carried, but rows go on
        for shard in range(self._ranks.rank, num_shards, self._ranks.number):
            rows = shard_rows(num_rows, shard, num_shards)
            found[shard] = {name: tensor[rows].to(self._fabric.device) for name, tensor in carried.items()}
        return found

    def _all_rows(self) -> Carried | None:
        """Hidden states of all rows, on the first process."""
        own = {shard: {name: rows.cpu() for name, rows in state.items()} for shard, state in self._carried.items()}
        shards = {shard: state for part in self._ranks.to_main(own) for shard, state in part.items()}
        return join_rows([shards[shard] for shard in sorted(shards)]) if shards else None

    def _compare_machine(self, before: Mapping[str, Any]) -> None:
        if not self._ranks.is_main:
            return
        for name, value in describe_machine(self._fabric).items():
            if value != before.get(name, 1 if name == "processes" else None):
                message = "%s = %s now, but the run had %s: it goes on, but not bit for bit"
                _logger.warning(message, name, value, before.get(name))

    def update(self, reading: PositionedBatch, stop: StopRequest) -> tuple[LossSum, float]:
        """One step: returns its loss and the norm of the gradient. A signal to this process becomes known to all."""
        state, config = self.state, self.config
        begin, cpu_begin = perf_counter(), process_time()
        self._batch = reading.batch
        if not state.step:
            self._warn_of_structure()
        self._stepping.before(reading.batch)
        optimizer, number = self._stepping.optimizer, state.step + 1
        self.model.begin_update(number)
        loss, norm, following = make_update(
            self._fabric, self.model, optimizer, reading.batch, config, number, carried=self._carried, ranks=self._ranks
        )
        self._carried = following if config.batches == "stream" else {}
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
        self._agree(stop.signal_name, process_time() - cpu_begin)
        return loss, norm

    def _agree(self, signal_name: str | None, cpu_seconds: float) -> None:
        """Limits of time and signals must end a run in all processes after the same step."""
        heard = self._ranks.all_of((signal_name, cpu_seconds))
        self._signal = next((name for name, _ in heard if name), None)
        self.state.cpu_seconds += sum(seconds for _, seconds in heard)
        self._tick()

    def interrupted_by(self, signal_name: str | None) -> str | None:
        """The signal that ends the run after this step: this process' own, or of several the one that all know of."""
        return signal_name if self._ranks.number == 1 else self._signal

    def evaluation_is_due(self, *, ends_epoch: bool) -> bool:
        """Tell whether dev is evaluated after this step by plan."""
        every = self.config.evaluate_every_steps
        return ends_epoch if every is None else self.state.step % every == 0

    def evaluate(self, dev: Iterable[Batch] | None, *, by_plan: bool) -> tuple[LossSum | None, bool]:
        """Score dev; returns the loss and whether it is the best so far. The best model is saved to the run folder.

        Without dev, the present model is saved. Schedule and early stopping see planned evaluations only, so that a
        run that was extended is the same as one that was long from the start. Where weights are averaged, what is
        scored and saved has their means.
        """
        with self._stepping.averages.in_place(self.model):
            self._warn_of_structure()
            return self._evaluate(dev, by_plan=by_plan)

    def _warn_of_structure(self) -> None:
        """Say so if the structure that the model finds in the last batch is of no use: perplexity does not."""
        if self._batch is None or not self._ranks.is_main:
            return
        fault = self.model.structure_fault(self._batch)
        if fault:
            when = f"after step {self.state.step}" if self.state.step else "before training"
            _logger.warning("%s, %s", when, fault)

    def _evaluate(self, dev: Iterable[Batch] | None, *, by_plan: bool) -> tuple[LossSum | None, bool]:
        if dev is None:
            self._save_best()
            return None, True
        begin = perf_counter()
        loss = self._score(dev)
        state, value = self.state, loss.nats_per_word
        f1 = None if self._dev_trees is None else self._dev_trees.unlabeled_f1(self.model, self._ranks)
        is_best = state.is_best(value, f1)
        if is_best:
            self._save_best()
        if by_plan:
            state.learning_rate.observe(value, self.config)
            state.early_stopping.observe(value)
            state.averaging.observe(value, state.step, self.config)
        self._tick()
        metrics = {**loss.named(), "is_best": is_best, "seconds": perf_counter() - begin}
        if f1 is not None:
            metrics["unlabeled_f1"] = f1
        if self._stepping.averages.num_steps:
            metrics["num_averaged_steps"] = self._stepping.averages.num_steps
        self._write("dev", metrics)
        return loss, is_best

    def _score(self, dev: Iterable[Batch]) -> LossSum:
        loss = evaluate(self._fabric, self.model, dev, self.config, ranks=self._ranks)
        if not loss.num_words:
            raise InputError("the dev data gives no words", remedy="check [data]: are all sentences filtered out?")
        if not math.isfinite(loss.nats_per_word):
            raise NonFiniteError(f"the dev loss is {loss.nats_per_word}", step=self.state.step)
        return loss

    def _save_best(self) -> None:
        check_finite(self.model, step=self.state.step)
        self._ranks.on_main(lambda: save_model(self.model, self.run_directory, keep_reading=True))

    @property
    def learning_rate(self) -> float:
        """Learning rate of the last update."""
        return self._stepping.learning_rate

    def log(self, *, force: bool) -> None:
        """Write the averages of an interval when it is full, or when something else is about to be logged."""
        interval, state = self.state.interval, self.state
        if not interval.num_steps or not (force or interval.num_steps >= self.config.log_every_steps):
            return
        metrics = {
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
        self._write("train", metrics)

    def checkpoint_is_due(self, *, ends_epoch: bool) -> bool:
        """Tell whether the state is saved after this step by plan."""
        steps, minutes = self.config.checkpoint_every_steps, self.config.checkpoint_every_minutes
        by_steps = steps is not None and self.state.step % steps == 0
        by_minutes = minutes is not None and self.state.seconds - self._saved_after >= 60 * minutes
        return ends_epoch or by_steps or by_minutes

    def save(self) -> None:
        """Write a checkpoint of everything that the rest of the run depends on."""
        check_finite(self.model, step=self.state.step)
        self._tick()
        carried = self._all_rows()
        self._ranks.on_main(lambda: self._save(carried))
        self._saved_after = self.state.seconds

    def _save(self, carried: Carried | None) -> None:
        assert self._metrics is not None
        self.state.metrics_bytes = self._metrics.flush_to_disk()
        random_tensors, random_values = random_state()
        tensors: dict[str, Mapping[str, Tensor]] = {
            "weights": self.model.state_dict(),
            "random": random_tensors,
            **self._stepping.tensors(),
        }
        if carried is not None:
            tensors["carried"] = carried
        values = {
            "state": self.state.to_json(),
            "training": to_plain(self.config),
            "model": describe_model(self.model),
            "machine": describe_machine(self._fabric),
            "random": random_values,
        }
        self._checkpoints.save(self.state.step, Checkpoint(tensors=tensors, values=values, files=self._files))

    def _write(self, kind: str, metrics: dict[str, Any]) -> None:
        state = self.state
        where = {"kind": kind, "step": state.step, "epoch": state.epoch, "elapsed_seconds": state.seconds}
        where["cpu_seconds"] = state.cpu_seconds
        if self._metrics is not None:
            self._metrics.write({**where, **metrics})

    def leave_out(self, seconds: float) -> None:
        """Do not count these seconds as training: the caller's own."""
        self._clock += seconds

    def _tick(self) -> None:
        now = perf_counter()
        self.state.seconds = self._ranks.from_main(self.state.seconds + now - self._clock)
        self._clock = now
