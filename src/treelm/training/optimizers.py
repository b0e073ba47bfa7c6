"""Optimisers: the one of the present phase, the learning rate of each step, and the averages of ASGD."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import SGD, Optimizer

from treelm.corpora.stream_batches import StreamBatch
from treelm.errors import InputError
from treelm.models.persistence.tensors import check_same_tensors
from treelm.training.checkpoint import REMEDY, Checkpoint
from treelm.training.config import TrainingConfig
from treelm.training.state import TrainingState
from treelm.training.updates import Batch

_OPTIMIZER, _AVERAGES = "optimizer", "averages"  # files of a checkpoint
_MOMENTS = ("exp_avg", "exp_avg_sq")  # of Adam


def build_optimizer(model: nn.Module, config: TrainingConfig, *, epoch: int) -> Optimizer:
    """The optimiser of an epoch (counted from 0); with ``adam-then-asgd`` one or the other.

    Raises ``InputError`` for a pattern of ``no_weight_decay`` that fits no parameter.
    """
    groups = parameter_groups(model, config)
    if not uses_adam(config, epoch):
        return SGD(groups, lr=config.learning_rate, fused=True)
    build: Any = torch.optim.Adam if config.coupled_weight_decay else torch.optim.AdamW
    optimizer: Optimizer = build(groups, lr=config.learning_rate, betas=config.betas, eps=config.epsilon, fused=True)
    return optimizer


def uses_adam(config: TrainingConfig, epoch: int) -> bool:
    """Tell whether the steps of an epoch (from 0) are Adam's."""
    return config.optimizer == "adam" or (config.optimizer == "adam-then-asgd" and epoch < config.adam_epochs)


def parameter_groups(model: nn.Module, config: TrainingConfig) -> list[dict[str, Any]]:
    """Groups of parameters: those with weight decay and, if ``no_weight_decay`` names some, those without.

    Raises ``InputError`` for a pattern that fits no parameter.
    """
    named = dict(model.named_parameters())
    spared = dict[str, nn.Parameter]()
    for pattern in config.no_weight_decay:
        found = {name: one for name, one in named.items() if fnmatchcase(name, pattern)}
        if not found:
            remedy = f"names are {', '.join(list(named)[:6])}{' ...' if len(named) > 6 else ''}"
            raise InputError(f"no_weight_decay = {pattern!r} fits no parameter", where="[training]", remedy=remedy)
        spared |= found
    groups: list[dict[str, Any]] = [
        {"params": [one for name, one in named.items() if name not in spared], "weight_decay": config.weight_decay},
        {"params": [one for name, one in named.items() if name in spared], "weight_decay": 0.0},
    ]
    return [group for group in groups if group["params"]]


class WeightAverages:
    """The mean of the weights over the steps so far: what ASGD evaluates and saves (Polyak & Juditsky 1992)."""

    def __init__(self) -> None:
        """Nothing has been averaged."""
        self.num_steps = 0
        self.means: dict[str, Tensor] = {}

    @torch.no_grad()
    def add(self, model: nn.Module) -> None:
        """Take in the weights after one more step."""
        self.num_steps += 1
        for name, parameter in model.named_parameters():
            if self.num_steps == 1:
                self.means[name] = parameter.detach().clone()
            else:
                self.means[name].lerp_(parameter.detach(), 1 / self.num_steps)

    @contextmanager
    def in_place(self, model: nn.Module) -> Iterator[None]:
        """Within this context the model has the mean weights, if there are any; afterwards its own again."""
        own = {name: parameter.detach().clone() for name, parameter in model.named_parameters() if self.num_steps}
        _fill(model, self.means)
        try:
            yield
        finally:
            _fill(model, own)


@torch.no_grad()
def _fill(model: nn.Module, values: Mapping[str, Tensor]) -> None:
    parameters = dict(model.named_parameters())
    for name, value in values.items():
        parameters[name].copy_(value)


class ScheduledOptimizer:
    """The optimizer of the present phase, with its learning rate and the averages of weights.

    It follows the counters of a ``TrainingState``, which it does not change, except for the beginning of averaging.
    """

    def __init__(self, model: nn.Module, config: TrainingConfig, state: TrainingState) -> None:
        """The optimizer that the state's epoch calls for; raises ``InputError`` for patterns that fit no parameter."""
        self._model, self._config, self._state = model, config, state
        self._num_steps: int | None = None  # of the run
        self.optimizer = build_optimizer(model, config, epoch=state.epoch)
        self.averages = WeightAverages()
        if config.optimizer == "asgd":  # averages from the first step
            state.averaging.begin(0)

    def begin_epoch(self, num_steps: int) -> None:
        """Work out the length of the run, of which a schedule may be shares, if all its epochs have ``num_steps``."""
        self._num_steps = self._state.num_steps(self._config, num_steps)

    def before_step(self, batch: Batch) -> None:
        """Go from Adam to ASGD where it is time, and set the learning rate."""
        state, config = self._state, self._config
        is_late = config.optimizer == "adam-then-asgd" and not uses_adam(config, state.epoch)
        if is_late:
            if not isinstance(self.optimizer, SGD):
                self.optimizer = build_optimizer(self._model, config, epoch=state.epoch)
            state.averaging.begin(state.step)
        peak = config.asgd_learning_rate if is_late else config.learning_rate
        scale = batch.learning_rate_scale if isinstance(batch, StreamBatch) else 1.0
        for group in self.optimizer.param_groups:
            group["lr"] = state.learning_rate.at(state.step + 1, config, self._num_steps, peak=peak) * scale

    def after_step(self) -> None:
        """Average in the weights of a step that was made."""
        if self._state.averaging.after_step is not None:
            self.averages.add(self._model)

    @property
    def learning_rate(self) -> float:
        """Learning rate of the last step."""
        return float(self.optimizer.param_groups[0]["lr"])

    def tensors(self) -> dict[str, Mapping[str, Tensor]]:
        """Moments (``exp_avg/stack.0.bias`` and so on) and averages of weights, for a checkpoint."""
        names, state = self._parameter_names(), self.optimizer.state_dict()["state"]
        moments = {f"{key}/{names[index]}": value for index, values in state.items() for key, value in values.items()}
        means = {_AVERAGES: self.averages.means} if self.averages.num_steps else {}
        return {_OPTIMIZER: moments, **means}

    def restore(self, checkpoint: Checkpoint) -> None:
        """The inverse of ``tensors``, for the same counters; raises ``InputError`` for tensors of another model."""
        weights = {name: parameter.detach() for name, parameter in self._model.named_parameters()}
        if not isinstance(self.optimizer, SGD):  # without momentum it has no state
            tensors, names = checkpoint.tensors[_OPTIMIZER], self._parameter_names()
            used = [name for name in names if f"step/{name}" in tensors]  # the others never had a gradient
            expected = {f"{moment}/{name}": weights[name] for moment in _MOMENTS for name in used}
            expected |= {f"step/{name}": torch.zeros(()) for name in used}
            check_same_tensors(tensors, expected, where=f"{checkpoint.where} optimizer", remedy=REMEDY)
            state = {
                index: {key: tensors[f"{key}/{name}"] for key in ("step", *_MOMENTS)}
                for index, name in enumerate(names)
                if name in used
            }
            self.optimizer.load_state_dict({**self.optimizer.state_dict(), "state": state})
        begun = self._state.averaging.after_step
        if begun is not None and self._state.step > begun:
            means = checkpoint.tensors[_AVERAGES]
            check_same_tensors(means, weights, where=f"{checkpoint.where} averages", remedy=REMEDY)
            self.averages.means = {name: means[name].to(own.device, copy=True) for name, own in weights.items()}
            self.averages.num_steps = self._state.step - begun

    def _parameter_names(self) -> list[str]:
        """Names of the parameters in the order in which the optimizer numbers them: group after group."""
        names = {parameter: name for name, parameter in self._model.named_parameters()}
        return [names[parameter] for group in self.optimizer.param_groups for parameter in group["params"]]
