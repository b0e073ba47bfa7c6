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
from treelm.models.persistence.tensors import check_finite_tensors, check_same_tensors
from treelm.training.checkpoints import REMEDY, Checkpoint
from treelm.training.config import TrainingConfig
from treelm.training.data import Batch
from treelm.training.state import TrainingState, optimizer_tensors, restore_optimizer

_OPTIMIZER, _AVERAGES = "optimizer", "averages"


def build_optimizer(model: nn.Module, config: TrainingConfig, *, epoch: int) -> Optimizer:
    """The optimiser of an epoch (from 0): of ``adam-then-asgd``, one or the other.

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
    """Parameters with weight decay and, if ``no_weight_decay`` names some, those without.

    Raises ``InputError`` for a name that fits no parameter.
    """
    patterns = config.no_weight_decay
    named = dict(model.named_parameters())
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in named):
            remedy = f"names are {', '.join(list(named)[:6])}{' ...' if len(named) > 6 else ''}"
            raise InputError(f"no_weight_decay = {pattern!r} fits no parameter", where="[training]", remedy=remedy)
    spared = [name for name in named if any(fnmatchcase(name, pattern) for pattern in patterns)]
    groups: list[dict[str, Any]] = [
        {"params": [named[name] for name in named if name not in spared], "weight_decay": config.weight_decay},
        {"params": [named[name] for name in spared], "weight_decay": 0.0},
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

    def restore(self, model: nn.Module, tensors: Mapping[str, Tensor], num_steps: int, *, where: str) -> None:
        """Go on from saved means; raises ``InputError`` unless they are those of this model."""
        own = {name: parameter.detach() for name, parameter in model.named_parameters()}
        check_same_tensors(tensors, own, where=where, remedy="resume with the model that was trained")
        check_finite_tensors(tensors, where=where, remedy=REMEDY)
        self.means = {name: tensor.to(own[name].device, copy=True) for name, tensor in tensors.items()}
        self.num_steps = num_steps

    @contextmanager
    def in_place(self, model: nn.Module) -> Iterator[None]:
        """Within this context the model has the mean weights, if there are any; afterwards its own again."""
        if not self.num_steps:
            yield
            return
        own = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
        _fill(model, self.means)
        try:
            yield
        finally:
            _fill(model, own)


@torch.no_grad()
def _fill(model: nn.Module, values: Mapping[str, Tensor]) -> None:
    for name, parameter in model.named_parameters():
        parameter.copy_(values[name])


class Stepping:
    """Follows the counters of a ``TrainingState``, which it never changes but for the beginning of the averages."""

    def __init__(self, model: nn.Module, config: TrainingConfig, state: TrainingState) -> None:
        """The optimiser that the state's epoch calls for; raises ``InputError`` for patterns that fit no parameter."""
        self._model, self._config, self._state = model, config, state
        self.optimizer = build_optimizer(model, config, epoch=state.epoch)
        self.averages = WeightAverages()

    def begin(self) -> None:
        """A new run: ``asgd`` averages from the first step."""
        if self._config.optimizer == "asgd":
            self._state.averaging.begin(0)

    def before(self, batch: Batch) -> None:
        """Make ready for a step: go from Adam to ASGD where it is time, set the learning rate."""
        state, config = self._state, self._config
        is_late = config.optimizer == "adam-then-asgd" and not uses_adam(config, state.epoch)
        if is_late:
            if not isinstance(self.optimizer, SGD):
                self.optimizer = build_optimizer(self._model, config, epoch=state.epoch)
            state.averaging.begin(state.step)
        peak = config.asgd_learning_rate if is_late else config.learning_rate
        scale = batch.learning_rate_scale if isinstance(batch, StreamBatch) else 1.0
        for group in self.optimizer.param_groups:
            group["lr"] = state.learning_rate.at(state.step + 1, config, peak=peak) * scale

    def after(self) -> None:
        """Take the weights of a step that was made."""
        if self._state.averaging.after_step is not None:
            self.averages.add(self._model)

    @property
    def learning_rate(self) -> float:
        """Learning rate of the last step."""
        return float(self.optimizer.param_groups[0]["lr"])

    def tensors(self) -> dict[str, Mapping[str, Tensor]]:
        """Tensors of optimiser and averages for a checkpoint."""
        tensors: dict[str, Mapping[str, Tensor]] = {_OPTIMIZER: optimizer_tensors(self._model, self.optimizer)}
        if self.averages.num_steps:
            tensors[_AVERAGES] = self.averages.means
        return tensors

    def restore(self, checkpoint: Checkpoint) -> None:
        """The inverse of ``tensors``, for the same counters."""
        where = checkpoint.where
        if not isinstance(self.optimizer, SGD):  # without momentum it has no state
            restore_optimizer(self._model, self.optimizer, checkpoint.file(_OPTIMIZER), where=where)
        begun = self._state.averaging.after_step
        if begun is not None and self._state.step > begun:
            self.averages.restore(self._model, checkpoint.file(_AVERAGES), self._state.step - begun, where=where)
