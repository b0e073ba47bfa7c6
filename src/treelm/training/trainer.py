"""Training by a recipe, from top to bottom: prepare, take steps, validate, and keep it all in a run folder."""

from __future__ import annotations

import logging
import math
import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, fields
from itertools import chain
from pathlib import Path
from time import perf_counter, process_time
from types import FrameType
from typing import Any

import torch

from treelm.configs import to_plain
from treelm.corpora.batches import SentenceBatches
from treelm.corpora.vocabularies import load_vocabulary, save_vocabulary
from treelm.errors import InputError, import_extra
from treelm.io.terminal import doing, progress_bar
from treelm.models.base import LanguageModel
from treelm.models.capabilities import (
    ConfidentParser,
    Counted,
    CouplesSentences,
    LatentTrees,
    PlansBatches,
    StepScheduled,
    has,
    set_search,
)
from treelm.models.layers.graphs import has_graphs
from treelm.models.persistence.shipped import check_given
from treelm.models.persistence.storage import VOCABULARY, describe_model, load_model, remove_leftovers, save_model
from treelm.models.persistence.tensors import check_same_tensors
from treelm.training.checkpoint import Checkpoint, newest_checkpoint, save_checkpoint
from treelm.training.config import LIMITS_OF_TIME, TrainingConfig
from treelm.training.distributed import ProcessGroup
from treelm.training.metrics import FILE_NAME, LossSum, MetricsLog, progress
from treelm.training.numerics import describe_machine, numerics, random_state, restore_random_state, seed_everything
from treelm.training.optimizers import ScheduledOptimizer, parameter_groups
from treelm.training.outcomes import NonFiniteError, TrainingInterrupted
from treelm.training.prepare import Setup, set_up
from treelm.training.recipe import FILE_NAME as RECIPE
from treelm.training.recipe import AnyRecipe, Recipe, load_recipe, save_recipe
from treelm.training.run_folder import (
    check_new_run,
    check_resumable,
    check_run,
    check_same_run,
    has_run,
    is_estimated,
    load_run_recipe,
    lock_folder,
)
from treelm.training.state import Interval, TrainingState
from treelm.training.updates import (
    Batch,
    ShardStates,
    dev_f1,
    dev_loss,
    join_rows,
    own_shards,
    read_epoch,
    update_weights,
)

_SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1")  # Windows lacks the last two
_logger = logging.getLogger(__name__)


def train(
    recipe: AnyRecipe = "",
    output: str | Path = "",
    *,
    resume: str | Path = "",
    resume_if_present: bool = False,
    quiet: bool = False,
    **settings: Mapping[str, Any],
) -> LanguageModel:
    """Train by a recipe and return the best model, as it was saved in the run folder ``output``.

    The recipe is the name of a packaged one, a path, or a dictionary of its sections; ``settings`` change it:
    ``training={"epochs": 2}`` is ``--set training.epochs=2`` of the command line. ``resume`` continues the run in this
    folder by the recipe that is kept there; ``resume_if_present`` continues the run in ``output`` if there is one, and
    begins it otherwise. Progress is shown on standard error, unless ``quiet``: then warnings are logged, also when a
    limit of time ends training. Of several processes, started by torchrun or srun, the first one prepares data, writes
    and shows progress; they share a file system.

    Raises ``InputError`` for a recipe or a folder that cannot be used, and what ``Trainer.steps`` raises.
    """
    if not resume:
        if not recipe:
            raise InputError("no recipe", remedy='give one and output = "RUN", or resume = "RUN"')
        if not isinstance(output, (str, Path)) or not str(output):
            raise InputError("no run folder", remedy='add output = "RUN"')
        recipe, run = load_recipe(recipe, settings), Path(output)
    elif recipe or output:
        found = f'{"a recipe" if recipe else "output"} beside resume = "{resume}"'
        raise InputError(found, remedy="remove one of them: a run keeps its recipe")
    else:
        check_given(resume)
        check_run(Path(resume))
        recipe, run = load_run_recipe(resume, settings), Path(resume)
    if resume_if_present and is_estimated(run, recipe):
        return _trained(run, recipe)
    resumes = bool(resume) or (resume_if_present and has_run(run, recipe))
    group = ProcessGroup(recipe.training)
    with ExitStack() as stack:  # from the first look at the folder to the last: what was seen there stays true
        group.on_main(lambda: stack.enter_context(lock_folder(run)))
        is_shown = group.is_main and not quiet
        with doing("preparing data and vocabulary") if is_shown else nullcontext():
            setup = _prepare(recipe, run, group, resumes=resumes)
        if isinstance(setup.model, Counted):
            group.on_main(lambda: _estimate(setup, run, is_shown=is_shown))
            return _trained(run, recipe)
        config, evaluates = setup.recipe.training, setup.dev is not None
        with progress(config, len(setup.batches), evaluates=evaluates) if is_shown else nullcontext() as show:
            for step in Trainer(setup, run, group, resumes=resumes).steps():
                if show:
                    show(step)
                elif (step.stopped_because or "").startswith(LIMITS_OF_TIME):
                    _logger.warning("training ended after step %d: %s", step.step, step.stopped_because)
        group.on_main(lambda: _calibrate(setup, run))
        return _trained(run, recipe)


def _trained(run: Path, recipe: Recipe) -> LanguageModel:
    """The model of a run, in evaluation mode, which searches as its recipe asks."""
    model = load_model(run).eval()
    set_search(model, recipe.search)
    return model


def _estimate(setup: Setup, run: Path, *, is_shown: bool) -> None:
    """Train a system that is estimated from counts: one look at the data, no steps, nothing to resume.

    Its loss on dev may take minutes, of which the progress ``is_shown``.
    """
    model, dev = setup.model, setup.dev
    assert isinstance(model, Counted)
    begin, cpu_begin = perf_counter(), process_time()
    model.estimate(setup.encoded)
    log, size = MetricsLog(run / FILE_NAME), len(setup.encoded)
    times = {"elapsed_seconds": perf_counter() - begin, "cpu_seconds": process_time() - cpu_begin}
    where = {"step": 0, "epoch": 1, **times}
    log.write({"kind": "estimate", **where, "num_sentences": size, "num_words": int(setup.encoded.num_words.sum())})
    if isinstance(dev, SentenceBatches):
        losses = []
        shown = progress_bar("loss on dev", len(dev), unit="batches") if is_shown else nullcontext(lambda: None)
        with shown as advance:
            for batch in dev:
                losses.append(model.losses(batch))
                advance()
        log.write({"kind": "dev", **where, **LossSum.sum(LossSum.read(losses)[0]).named()})
    save_model(model, run)


def _calibrate(setup: Setup, run: Path) -> None:
    """Let the model that was kept calibrate its confidence on dev, if it is a ``ConfidentParser``."""
    batches = list(setup.dev) if isinstance(setup.dev, SentenceBatches) else []
    if isinstance(setup.model, ConfidentParser) and batches:
        model = load_model(run)
        assert isinstance(model, ConfidentParser)
        _logger.info("%s", model.calibrate(batches))
        save_model(model, run)


# Prepare.


def _prepare(recipe: Recipe, run: Path, group: ProcessGroup, *, resumes: bool) -> Setup:
    """The first process checks the folder and makes what is kept on disk; then the others find it there."""
    setup: Setup | None = None

    def first() -> None:
        nonlocal setup
        if resumes:
            check_resumable(run, recipe)
        else:
            check_new_run(run, recipe)
        if recipe.model.is_estimated:
            _check_estimated(recipe.model.system, recipe.training, resumes=resumes)
        kept = run / VOCABULARY
        setup = set_up(recipe, vocabulary=load_vocabulary(kept) if resumes and kept.exists() else None)
        if not recipe.model.is_estimated:
            check_settings(setup.model, recipe.training, group, has_dev=setup.dev is not None)
        if not resumes:
            run.mkdir(parents=True, exist_ok=True)
            save_vocabulary(setup.model.vocabulary, kept)
            save_recipe(setup.recipe, run / RECIPE)

    group.on_main(first)
    with group.raise_together():
        return setup or set_up(recipe, vocabulary=load_vocabulary(run / VOCABULARY))


def _check_estimated(system: str, config: TrainingConfig, *, resumes: bool) -> None:
    """Raise ``InputError`` for what has no meaning without steps."""
    if resumes:
        remedy = "train it again, in another run folder"
        raise InputError(f"{system} is estimated in one go: there is nothing to resume", remedy=remedy)
    for one in fields(config):
        value = getattr(config, one.name)
        if value != one.default and one.name not in ("devices", "num_nodes", "timeout_minutes"):
            found = f"{one.name} = {value!r} for {system}, which is estimated, not optimised"
            raise InputError(found, where="[training]", remedy="remove it: [training] is of training step by step")


def check_settings(model: LanguageModel, config: TrainingConfig, group: ProcessGroup, *, has_dev: bool) -> None:
    """Raise ``InputError`` for a config that does not fit model, data, processes or device."""

    def check(is_right: bool, found: str, remedy: str = "remove this option") -> None:
        if not is_right:
            raise InputError(found, where="[training]", remedy=remedy)

    parameter_groups(model, config)  # refuses a no_weight_decay that fits no parameter, before there is a run folder
    needs_dev = {"schedule": "plateau", "optimizer": "nt-asgd", "select_by": "unlabeled_f1"}
    lacking = [f'{name} = "{value}"' for name, value in needs_dev.items() if getattr(config, name) == value]
    lacking += ["stop_after"] if config.stop_after is not None else []
    check(has_dev or not lacking, f"{', '.join(lacking)} without dev data", "give dev data, or remove this option")
    shards, batch_size = config.shards or group.size, config.batch_size
    check(shards >= group.size, f"shards = {shards} for {group.size} processes", "give each process a shard")
    found = f"a stream of batch_size = {batch_size} rows for {shards} shards"
    check(config.batches != "stream" or batch_size >= shards, found, "raise batch_size, or lower shards or devices")
    found = f"{shards} shards of a batch that {model.system} normalises as a whole"
    check(shards == 1 or not has(model, CouplesSentences), found, 'take one process, or norm = "layer" in [model]')
    has_gpu, fused = group.device.type == "cuda", f'fused_kernels = "{config.fused_kernels}"'
    check(has_gpu or not config.cuda_graphs, "cuda_graphs = true without a GPU")
    of = f"{model.system} with attention composition" if isinstance(model, PlansBatches) else model.system
    check(has_graphs(model) or not config.cuda_graphs, f"cuda_graphs = true for {of}, which has no loops of one shape")
    if config.fused_kernels != "none":
        check(has_gpu, f"{fused} without a GPU")
        check(not config.cuda_graphs, f"{fused} with cuda_graphs = true, which captures other kernels")
        can_fuse = isinstance(model, PlansBatches) and model.has_fused_kernels
        check(can_fuse, f"{fused} for what is not an RNNG, or one with attention composition")
        import_extra("triton", "triton")


# Take steps.


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


class Trainer:
    """A run in progress, in a folder that the caller has locked: its state, optimizer, log and hidden states."""

    def __init__(self, setup: Setup, run: Path, group: ProcessGroup, *, resumes: bool) -> None:
        """Train what ``set_up`` has made, in the folder ``run``; with ``resumes``, go on from its newest checkpoint."""
        self.setup, self.model, self.config = setup, setup.model, setup.recipe.training
        self.run, self.group, self.resumes = run, group, resumes
        self.state = TrainingState()
        self.carried: ShardStates = {}
        """Hidden states of a stream, for the next segment."""
        self._clock = self._saved_after = 0.0

    def steps(self) -> Iterator[Step]:
        """Train, and make one step each time one is asked for::

            for step in Trainer(setup, Path("runs/first"), ProcessGroup(config), resumes=False).steps():
                if step.is_best:
                    print(step.epoch, step.dev.nats_per_word)

        The minimised loss is ``model.losses(batch).total``, a sum in nats, divided by the batch's words or sentences
        (``config.normalise_loss``). Dev is evaluated by the same total, per word, without dropout; the best model on it
        is in the run folder (without dev, the last; with ``select_by = "unlabeled_f1"``, the one whose trees agree best
        with those of dev). A run that is resumed goes on as if it had never stopped: with the same weights bit for bit,
        given the same machine and number of threads; an RNNG with ``cuda_graphs``, up to rounding.

        Every one of several processes gets all steps. Raises ``InputError`` when the run cannot begin or resume,
        ``NonFiniteError`` before a bad update, ``TrainingInterrupted`` after SIGINT, SIGTERM, SIGHUP or SIGUSR1, when
        the step is finished and saved, and ``ProcessLost`` when another process is gone. Another SIGINT ends the
        process at once.
        """
        with numerics(self.config), stop_signals() as received:
            self._begin()
            config, state, group = self.config, self.state, self.group
            reason = state.reason_to_stop(config)
            if reason is not None:
                load_model(self.run)  # the error of a run that is damaged is all that is to be said
                _logger.warning("nothing left to do in %s: %s", self.run, reason)
            while reason is None:
                self.optimizer.begin_epoch(len(self.setup.batches))
                for batch, position, following in read_epoch(self.setup.batches):
                    ends_epoch = following is None
                    begin, cpu_begin = perf_counter(), process_time()
                    if not state.step:
                        self._warn_of_structure(batch)
                    self.optimizer.before_step(batch)
                    if isinstance(self.model, StepScheduled):
                        self.model.before_step(state.step + 1)
                    step, optimizer = state.step + 1, self.optimizer.optimizer
                    update = update_weights(
                        self.model, optimizer, batch, config, step, group, self.carried, next_batch=following
                    )
                    self.carried = update.carried
                    state.step += 1
                    self.optimizer.after_step()
                    state.step_in_epoch += 1
                    state.position = position
                    if ends_epoch:
                        state.epoch, state.step_in_epoch = state.epoch + 1, 0
                    # Losses, signals and limits of time are known to all, so that a run ends after the same step.
                    own = update.loss, received[:1], process_time() - cpu_begin, self._elapsed()
                    losses, signals, cpu_seconds, elapsed = zip(*group.all_gather(own), strict=True)
                    loss, interrupted_by = LossSum.sum(losses), next(chain(*signals), None)
                    state.seconds, state.cpu_seconds = elapsed[0], state.cpu_seconds + sum(cpu_seconds)
                    state.interval.add(loss, update.gradient_norm, perf_counter() - begin)

                    every = config.evaluate_every_steps
                    by_plan = ends_epoch if every is None else state.step % every == 0
                    reason = state.reason_to_stop(config)
                    if by_plan or reason or state.interval.num_steps >= config.log_every_steps:
                        self._log_interval()
                    dev_loss, is_best = None, False
                    if by_plan or reason:
                        dev_loss, is_best = self.validate(batch, by_plan=by_plan)
                        reason = reason or state.reason_to_stop(config)
                    steps, minutes = config.checkpoint_every_steps, config.checkpoint_every_minutes
                    is_due = steps is not None and state.step % steps == 0
                    is_due |= minutes is not None and state.seconds - self._saved_after >= 60 * minutes
                    if reason or interrupted_by or ends_epoch or is_due:
                        self.save()
                    paused = perf_counter()
                    yield Step(
                        step=state.step,
                        epoch=state.epoch,
                        step_in_epoch=state.step_in_epoch,
                        seconds=state.seconds,
                        cpu_seconds=state.cpu_seconds,
                        loss=loss,
                        gradient_norm=update.gradient_norm,
                        learning_rate=self.optimizer.learning_rate,
                        dev=dev_loss,
                        is_best=is_best,
                        stopped_because=reason,
                    )
                    self._clock += perf_counter() - paused  # the caller's own time is not training
                    if reason:  # a signal in the last step changes nothing: the run is finished
                        break
                    if interrupted_by:
                        raise TrainingInterrupted(interrupted_by, state.step)

    def _begin(self) -> None:
        """Set up a new run, or restore the newest checkpoint of an old one."""
        model, group = self.model, self.group
        checkpoint = group.on_main(self._find_checkpoint)
        self.state = checkpoint.state if checkpoint else TrainingState()
        model.to(group.device)
        self.optimizer = ScheduledOptimizer(model, self.config, self.state)
        self._clock = perf_counter()
        if checkpoint:
            self._restore(checkpoint)
        else:
            seed_everything(self.config.seed)
            self.state.position = self.setup.batches.state()
            group.broadcast_weights(model)
        self.log = MetricsLog(self.run / FILE_NAME, offset=self.state.metrics_bytes) if group.is_main else None
        self._saved_after = self.state.seconds
        if checkpoint:
            restore_random_state(checkpoint.tensors["random"], checkpoint.values["random"], where=checkpoint.where)
            if group.is_main:
                save_recipe(self.setup.recipe, self.run / RECIPE)  # it was accepted, and may be longer than before
        else:
            self.save()
        model.train()

    def _find_checkpoint(self) -> Checkpoint | None:
        checkpoint = newest_checkpoint(self.run) if self.resumes else None
        if checkpoint is None:  # a run that was killed before its first checkpoint starts from the beginning
            check_new_run(self.run)
        remove_leftovers(self.run)
        return checkpoint

    def _restore(self, checkpoint: Checkpoint) -> None:
        """Fill model, optimizer, hidden states and position; raises ``InputError`` unless it is the same run."""
        group, where, weights = self.group, checkpoint.where, checkpoint.tensors["weights"]
        check_same_run(checkpoint.values, self.model, self.setup.recipe, self.run, where=where)
        for name, value in describe_machine(group.device, processes=group.size).items():
            before = checkpoint.values["machine"].get(name, 1 if name == "processes" else None)
            if value != before:
                _logger.warning("%s = %s now, but the run had %s: it goes on, but not bit for bit", name, value, before)
        remedy = "resume with the model that was trained"
        check_same_tensors(weights, self.model.state_dict(), where=where, remedy=remedy)
        self.model.load_state_dict(weights)
        self.optimizer.restore(checkpoint)
        if self.config.batches == "stream" and self.state.step:
            rows_of_all = checkpoint.tensors["carried"]
            num_rows = max(map(len, rows_of_all.values()), default=0)  # without memory nothing is carried
            for shard, rows in own_shards(num_rows, self.config, group).items():
                self.carried[shard] = {name: one[rows].to(group.device) for name, one in rows_of_all.items()}
        self.setup.batches.restore(self.state.position)

    def _elapsed(self) -> float:
        """Seconds of training until now. All processes go by the first one's clock."""
        passed = perf_counter() - self._clock
        self._clock += passed
        return self.state.seconds + passed

    # Validate.

    def validate(self, batch: Batch, *, by_plan: bool) -> tuple[LossSum | None, bool]:
        """Score dev; returns the loss and whether it is the best so far. The best model is saved to the run folder.

        Without dev, the present model is saved. Schedule and early stopping see planned evaluations only, so that a run
        that was extended is the same as one that was long from the start. If the optimizer averages weights, the
        averaged ones are scored and saved. ``batch`` is the last training batch; a model of latent trees is asked
        whether its structure in it has become useless. Raises ``InputError`` for dev data without words, and
        ``NonFiniteError`` for a dev loss that is not finite.
        """
        averages, state = self.optimizer.averages, self.state
        with averages.in_place(self.model):
            self._warn_of_structure(batch)
            if self.setup.dev is None:
                self._save_model()
                return None, True
            begin = perf_counter()
            loss = dev_loss(self.model, self.setup.dev, self.config, self.group)
            if not loss.num_words:
                raise InputError("the dev data gives no words", remedy="check [data]: are all sentences filtered out?")
            value = loss.nats_per_word
            if not math.isfinite(value):
                raise NonFiniteError(f"the dev loss is {value}", step=state.step)
            gold = self.setup.dev_trees
            f1 = None if gold is None else dev_f1(self.model, gold, self.group)
            is_best = state.is_best(value, f1)
            if is_best:
                self._save_model()
            if by_plan:
                state.learning_rate.observe(value, self.config)
                state.early_stopping.observe(value)
                state.averaging.observe(value, state.step, self.config)
            state.seconds = self.group.on_main(self._elapsed)
            metrics = {**loss.named(), "is_best": is_best, "seconds": perf_counter() - begin}
            if f1 is not None:
                metrics["unlabeled_f1"] = f1
            if averages.num_steps:
                metrics["num_averaged_steps"] = averages.num_steps
            self._write("dev", metrics)
            return loss, is_best

    def _warn_of_structure(self, batch: Batch) -> None:
        """Say so if the structure that the model finds in a batch is of no use: perplexity does not."""
        if not isinstance(self.model, LatentTrees) or not self.group.is_main:
            return
        if fault := self.model.diagnose_latent_trees(batch):
            when = f"after step {self.state.step}" if self.state.step else "before training"
            _logger.warning("%s, %s", when, fault)

    def _save_model(self) -> None:
        check_finite(self.model, step=self.state.step)
        self.group.on_main(lambda: save_model(self.model, self.run, keep_overrides=True))

    # Keep.

    def _log_interval(self) -> None:
        """Write the averages of the steps since the last line."""
        interval, self.state.interval = self.state.interval, Interval()
        loss, seconds = interval.loss, interval.seconds
        metrics = {
            **loss.named(),
            "gradient_norm": interval.gradient_norm / interval.num_steps,
            "learning_rate": self.optimizer.learning_rate,
            "num_steps": interval.num_steps,
            "num_words": loss.num_words,
            "num_sentences": loss.num_sentences,
            "words_per_second": loss.num_words / seconds,
            "sentences_per_second": loss.num_sentences / seconds,
        }
        self._write("train", metrics)

    def _write(self, kind: str, metrics: dict[str, Any]) -> None:
        if self.log is not None:
            state = self.state
            times = {"elapsed_seconds": state.seconds, "cpu_seconds": state.cpu_seconds}
            self.log.write({"kind": kind, "step": state.step, "epoch": state.epoch, **times, **metrics})

    def save(self) -> None:
        """Write a checkpoint of everything that the rest of the run depends on."""
        check_finite(self.model, step=self.state.step)
        self.state.seconds = self.group.on_main(self._elapsed)
        own = {shard: {name: rows.cpu() for name, rows in state.items()} for shard, state in self.carried.items()}
        carried = {shard: state for part in self.group.all_gather(own) for shard, state in part.items()}
        self.group.on_main(lambda: self._save(carried))
        self._saved_after = self.state.seconds

    def _save(self, carried: ShardStates) -> None:
        assert self.log is not None
        self.state.metrics_bytes = self.log.flush_to_disk()
        random_tensors, random_values = random_state()
        tensors: dict[str, Any] = {"weights": self.model.state_dict(), "random": random_tensors}
        if carried:
            tensors["carried"] = join_rows([carried[shard] for shard in sorted(carried)])
        values = {
            "training": to_plain(self.config),
            "model": describe_model(self.model),
            "machine": describe_machine(self.group.device, processes=self.group.size),
            "random": random_values,
        }
        checkpoint = Checkpoint(self.state, values, {**tensors, **self.optimizer.tensors()})
        save_checkpoint(self.run, checkpoint, keep=self.config.keep_checkpoints)


@contextmanager
def stop_signals() -> Iterator[list[str]]:
    """Collect the names of the signals that arrive while the block runs.

    Signals that were ignored before (by ``nohup``) stay ignored. A second SIGINT has its usual effect. Outside the main
    thread, where Python allows no handlers, no signal is watched.
    """
    received: list[str] = []
    is_main = threading.current_thread() is threading.main_thread()
    numbers = [getattr(signal, name) for name in _SIGNALS if hasattr(signal, name) and is_main]
    before = {one: handler for one in numbers if (handler := signal.getsignal(one)) != signal.SIG_IGN}

    def remember(number: int, frame: FrameType | None) -> None:
        received.append(signal.Signals(number).name)
        if number == signal.SIGINT:
            signal.signal(signal.SIGINT, before[number])

    for number in before:
        signal.signal(number, remember)
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def check_finite(model: LanguageModel, *, step: int) -> None:
    """Raise ``NonFiniteError`` when a weight is not finite, so that it is never saved."""
    for name, tensor in model.state_dict().items():
        if not torch.isfinite(tensor).all():
            raise NonFiniteError(f"weight {name!r} is not finite", step=step)
