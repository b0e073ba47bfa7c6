"""The processes that train together: what they tell each other, and what only one of them does.

Whoever meets an error that users see tells the others, so that all end with the same words and nobody waits for ever.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as distributed
from lightning_fabric import Fabric
from torch import nn

from treelm.errors import InputError, is_out_of_memory
from treelm.training.config import TrainingConfig
from treelm.training.outcomes import NonFiniteError, ProcessLost
from treelm.training.placement import build_fabric

Value = TypeVar("Value")
_SHARED_ERRORS = (InputError, NonFiniteError, OSError)


class Ranks:
    """This process and the others. Alone, every method does what it says without asking anybody."""

    def __init__(self, fabric: Fabric, *, timeout_minutes: float = 30.0) -> None:
        """Connect for messages, beside Fabric's own connection for gradients, which may be the GPUs'."""
        self.rank, self.number = fabric.global_rank, fabric.world_size
        self._fabric = fabric
        self._messages: Any = None
        if self.number > 1:
            self._minutes = timeout_minutes
            with self._listening():
                timeout = timedelta(minutes=timeout_minutes)
                self._messages = distributed.new_group(backend="gloo", timeout=timeout)

    @classmethod
    def connect(cls, config: TrainingConfig) -> Ranks:
        """Find the other processes, as ``find_placement`` says, and wait for them.

        Raises ``InputError`` in the first process if the port where they are to meet is in use.
        """
        try:
            fabric = build_fabric(config)
        except distributed.DistError as error:
            if "EADDRINUSE" in str(error):  # there is no errno
                found, where = "the port is in use", f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
                remedy = "set MASTER_PORT to a free one, the same for all processes of the run, or end what uses it"
                raise InputError(found, where=where, remedy=remedy) from error
            raise ProcessLost(config.timeout_minutes) from error
        return cls(fabric, timeout_minutes=config.timeout_minutes)

    @property
    def fabric(self) -> Fabric:
        """Devices and precision."""
        return self._fabric

    @property
    def is_main(self) -> bool:
        """True in the process that writes: the first one."""
        return self.rank == 0

    def all_of(self, value: Value) -> list[Value]:
        """Gather the value of each process, in their order."""
        if self.number == 1:
            return [value]
        values: list[Any] = [None] * self.number
        with self._listening():
            distributed.all_gather_object(values, value, group=self._messages)
        return values

    def to_main(self, value: Value) -> list[Value]:
        """Gather the value of each process, in their order, on the first one; the others get an empty list."""
        if self.number == 1:
            return [value]
        values: list[Any] = [None] * self.number if self.is_main else []
        with self._listening():
            distributed.gather_object(value, values if self.is_main else None, dst=0, group=self._messages)
        return values

    def from_main(self, value: Value) -> Value:
        """Broadcast the value of the first process."""
        if self.number == 1:
            return value
        values: list[Any] = [value]
        with self._listening():
            distributed.broadcast_object_list(values, src=0, group=self._messages)
        found: Value = values[0]
        return found

    def together(self, compute: Callable[[], Value]) -> list[Value]:
        """Gather the results of each, in their order; if some meet errors that users see, all raise the first one's."""
        if self.number == 1:
            return [compute()]
        outcomes = self.all_of(_attempt(compute))
        for _, error in outcomes:
            if error is not None:
                raise error
        return [value for value, _ in outcomes]

    def on_main(self, compute: Callable[[], Value]) -> Value:
        """Compute on the first process, and give its result, or its error, to all; the others wait."""
        if self.number == 1:
            return compute()
        outcome: tuple[Any, BaseException | None] = _attempt(compute) if self.is_main else (None, None)
        value, error = self.from_main(outcome)
        if error is not None:
            raise error
        found: Value = value
        return found

    def sum_gradients(self, model: nn.Module) -> None:
        """Add up the gradients of all, in one piece. A parameter that somebody used has a gradient everywhere then."""
        if self.number == 1:
            return
        parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        used = torch.tensor([parameter.grad is not None for parameter in parameters], dtype=torch.uint8)
        with self._listening():
            distributed.all_reduce(used, distributed.ReduceOp.MAX, group=self._messages)
            chosen = [parameter for parameter, is_used in zip(parameters, used.tolist(), strict=True) if is_used]
            for parameter in chosen:
                if parameter.grad is None:
                    parameter.grad = torch.zeros_like(parameter)
            gradients = [parameter.grad for parameter in chosen if parameter.grad is not None]
            if not gradients:
                return
            flat = torch.cat([gradient.flatten() for gradient in gradients])
            distributed.all_reduce(flat)
        totals = torch.split(flat, [gradient.numel() for gradient in gradients])
        for gradient, total in zip(gradients, totals, strict=True):
            gradient.copy_(total.view_as(gradient))

    def same_weights(self, model: nn.Module) -> None:
        """Give all the first one's weights."""
        if self.number == 1:
            return
        with self._listening():
            for tensor in model.state_dict().values():
                distributed.broadcast(tensor, src=0)

    @contextmanager
    def _listening(self) -> Iterator[None]:
        try:
            yield
        except RuntimeError as error:  # the kinds that backends raise have no common name
            if is_out_of_memory(error):
                raise
            raise ProcessLost(self._minutes) from error


def _attempt(compute: Callable[[], Value]) -> tuple[Any, BaseException | None]:
    try:
        return compute(), None
    except _SHARED_ERRORS as error:
        return None, error
