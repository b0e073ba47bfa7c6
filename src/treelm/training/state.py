"""The state of training in a checkpoint: counters and schedules as JSON values, checked field by field when read."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from treelm.errors import InputError
from treelm.io.json import finite
from treelm.models.configs import from_plain
from treelm.models.persistence.tensors import check_finite_tensors, check_same_tensors
from treelm.training.checkpoints import REMEDY, Checkpoint
from treelm.training.config import EXTENDABLE, TrainingConfig
from treelm.training.metrics import LossSum
from treelm.training.schedules import AveragingStart, LearningRate, Patience

_LATER = ("cpu_seconds", "best_f1", "averaging")  # fields that the first runs lack
_LOSSES = ("best", "best_loss", "earlier", "total", "terms")  # of any sign; all other numbers are amounts
_MOST = {"seconds": 1e10, "cpu_seconds": 1e13, "best_f1": 100, "factor": 1}
_MOMENTS = ("exp_avg", "exp_avg_sq")  # of Adam


@dataclass
class Interval:
    """Sums over the steps that the next line of ``metrics.jsonl`` averages."""

    loss: LossSum = field(default_factory=LossSum)
    gradient_norm: float = 0.0  # sum over steps
    num_steps: int = 0
    seconds: float = 0.0


@dataclass
class TrainingState:
    """Counters, schedule, best score, position in the data and in the log."""

    step: int = 0
    epoch: int = 0  # complete ones
    step_in_epoch: int = 0
    seconds: float = 0.0
    cpu_seconds: float = 0.0  # processor time of updates
    best_loss: float | None = None  # dev, nats a word
    best_f1: float | None = None  # dev, if models are selected by it
    learning_rate: LearningRate = field(default_factory=LearningRate)
    early_stopping: Patience = field(default_factory=Patience)
    averaging: AveragingStart = field(default_factory=AveragingStart)
    interval: Interval = field(default_factory=Interval)
    position: dict[str, Any] = field(default_factory=dict)
    metrics_bytes: int = 0

    def to_json(self) -> dict[str, Any]:
        """Plain values; ``read_state`` is the inverse."""
        return asdict(self)

    def is_best(self, loss: float, f1: float | None) -> bool:
        """Tell whether this dev loss, or F1 if there is one, is the best so far; keeps the best of both."""
        better_loss = self.best_loss is None or loss < self.best_loss
        better_f1 = f1 is not None and (self.best_f1 is None or f1 > self.best_f1)
        if better_loss:
            self.best_loss = loss
        if better_f1:
            self.best_f1 = f1
        return better_loss if f1 is None else better_f1

    def reason_to_stop(self, config: TrainingConfig) -> str | None:
        """Reason why training is over, or None."""
        if config.epochs is not None and self.epoch >= config.epochs:
            return f"epochs = {config.epochs} are done"
        if config.max_steps is not None and self.step >= config.max_steps:
            return f"max_steps = {config.max_steps} are done"
        if not self.step:  # however short the time: without a step there would be no model
            return None
        if config.max_minutes is not None and self.seconds >= 60 * config.max_minutes:
            return f"max_minutes = {config.max_minutes} are over"
        if config.max_cpu_minutes is not None and self.cpu_seconds >= 60 * config.max_cpu_minutes:
            return f"max_cpu_minutes = {config.max_cpu_minutes} are over"
        if config.stop_after is not None and self.early_stopping.num_worse >= config.stop_after:
            return f"dev has not improved in {self.early_stopping.num_worse} evaluations"
        return None


def read_state(checkpoint: Checkpoint) -> TrainingState:
    """The state of training in a checkpoint; raises ``InputError`` with file and field for what we never wrote."""
    where = f"{checkpoint.where} state"
    values = checkpoint.table("state")
    _check_complete(values, TrainingState().to_json(), where)
    try:
        state = from_plain(TrainingState, values, where=where)
    except InputError as error:  # what it advises is for files that people write
        raise InputError(error.found, where=error.where, remedy=REMEDY) from None
    _check_numbers({name: value for name, value in values.items() if name != "position"}, where)
    for found in _contradictions(state, checkpoint.step):
        raise InputError(found, where=where, remedy=REMEDY)
    return state


def _check_complete(values: Any, template: Mapping[str, Any], where: str) -> None:
    for name, content in template.items():
        if name in values:
            if content and isinstance(content, dict) and isinstance(values[name], dict):
                _check_complete(values[name], content, f"{where} {name}")
        elif name not in _LATER:
            raise InputError(f"field {name!r} is missing", where=where, remedy=REMEDY)


def _check_numbers(values: Mapping[str, Any], where: str, *, are_losses: bool = False) -> None:
    for name, value in values.items():
        is_loss = are_losses or name in _LOSSES
        if isinstance(value, dict):
            _check_numbers(value, f"{where} {name}", are_losses=is_loss)
            continue
        least, most = -math.inf if is_loss else 0, _MOST.get(name, math.inf)
        for number in value if isinstance(value, list) else [value]:
            if number is not None and not (math.isfinite(number) and least <= number <= most):
                raise InputError(f"{name} = {number!r}", where=where, remedy=REMEDY)


def _contradictions(state: TrainingState, step: int | None) -> Iterator[str]:
    """Values that cannot be true together; ``step`` is that of the checkpoint's name."""
    if step not in (None, state.step):
        yield f"step = {state.step} in a checkpoint of step {step}"
    at_most_once_a_step = {
        "epoch": state.epoch,
        "step_in_epoch": state.step_in_epoch,
        "interval num_steps": state.interval.num_steps,
        "early_stopping num_worse": state.early_stopping.num_worse,
        "learning_rate plateau num_worse": state.learning_rate.plateau.num_worse,
        "averaging earlier": len(state.averaging.earlier),
        "averaging after_step": state.averaging.after_step or 0,
    }
    for name, number in at_most_once_a_step.items():
        if number > state.step:
            yield f"{name} = {number}, but step = {state.step}"
    if state.position.get("epoch", state.epoch) != state.epoch:
        yield f"position epoch = {state.position['epoch']!r}, but epoch = {state.epoch}"
    for name, term in state.interval.loss.terms.items():
        if len(term) != 2:
            yield f"interval loss terms {name} = {term}, not a sum and a count"


def check_unchanged(saved: Mapping[str, Any], present: Mapping[str, Any], *, what: str, where: str) -> None:
    """Raise ``InputError`` at the first field that differs from the run's own, but for what may be extended."""
    saved, present = finite(saved), finite(present)
    for name in {**saved, **present}:
        if what == "training" and name in EXTENDABLE:
            continue
        if name == "treelm":
            continue
        before, now = saved.get(name), present.get(name)
        if isinstance(before, dict) and isinstance(now, dict):
            check_unchanged(before, now, what=f"{what} {name}", where=where)
        elif before != now:
            found = f"{what}: {name} = {_shorten(now)} now, but the run was started with {_shorten(before)}"
            may = f" (only {', '.join(EXTENDABLE)} may change)" if what == "training" else ""
            raise InputError(found, where=where, remedy=f"resume with the old value{may}, or start a new run")


def _shorten(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def optimizer_tensors(model: nn.Module, optimizer: Optimizer) -> dict[str, Tensor]:
    """The optimiser's state by parameter: ``exp_avg/stack.0.bias`` and so on."""
    names = _names_in_order(model, optimizer)
    state = optimizer.state_dict()["state"]
    return {f"{key}/{names[index]}": value for index, values in state.items() for key, value in values.items()}


def restore_optimizer(model: nn.Module, optimizer: Optimizer, tensors: Mapping[str, Tensor], *, where: str) -> None:
    """The inverse of ``optimizer_tensors`` for Adam; raises ``InputError`` for what is not the state of this model."""
    parameters = dict(model.named_parameters())
    indices = {name: index for index, name in enumerate(_names_in_order(model, optimizer))}
    state: dict[int, dict[str, Tensor]] = {}
    expected: dict[str, Tensor] = {}
    for name in {path.partition("/")[2] for path in tensors} & indices.keys():
        expected[f"step/{name}"] = torch.zeros(())
        expected |= {f"{moment}/{name}": parameters[name].detach() for moment in _MOMENTS}
    remedy = "resume with the model that was trained"
    check_same_tensors(tensors, expected, where=f"{where} optimizer", remedy=remedy)
    check_finite_tensors(tensors, where=f"{where} optimizer", remedy=REMEDY)
    for path, tensor in tensors.items():
        key, _, name = path.partition("/")
        state.setdefault(indices[name], {})[key] = tensor
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})


def _names_in_order(model: nn.Module, optimizer: Optimizer) -> list[str]:
    """Names of the parameters in the order in which the optimiser numbers them: group after group."""
    names = {parameter: name for name, parameter in model.named_parameters()}
    return [names[parameter] for group in optimizer.param_groups for parameter in group["params"]]


def restore_weights(model: nn.Module, tensors: Mapping[str, Tensor], *, where: str) -> None:
    """Fill a model; raises ``InputError`` unless names and shapes are the same."""
    own = model.state_dict()
    check_same_tensors(tensors, own, where=where, remedy="resume with the model that was trained")
    check_finite_tensors(tensors, where=where, remedy=REMEDY)
    model.load_state_dict(tensors)
