"""CUDA graphs: a loop over steps becomes one call on a GPU, forward and backward.

Off unless asked for (``cuda_graphs``), on GPUs only, and in training only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any

import torch
from torch import Tensor

from treelm.models.layers.precision import operand

Function = Callable[..., tuple[Tensor, ...]]

MOST_FORMS = 64  # captured for one function; each holds its own memory, and others are computed step by step

_wanted: ContextVar[bool] = ContextVar("cuda_graphs", default=False)


@contextmanager
def cuda_graphs(*, wanted: bool = True) -> Iterator[None]:
    """Within this context, layers capture their loops and replay them."""
    token = _wanted.set(wanted)
    try:
        yield
    finally:
        _wanted.reset(token)


class GraphedFunction:
    """A differentiable function of tensors, captured once for each form of its arguments.

    A replay overwrites what the backward pass of the one before needs. So as long as that has not been computed, and
    wherever else a graph does not fit, the function itself is called. One for every place that calls it.
    """

    def __init__(self, function: Function, *, capture: Callable[..., Any] | None = None, device: str = "cuda") -> None:
        """``capture`` makes a replayed function of a function and samples of its arguments."""
        self._function, self._device = function, device
        self._capture = capture or torch.cuda.make_graphed_callables
        self._captured: dict[Any, Any] = {}
        self._awaits_backward = False

    def __call__(self, *arguments: Tensor | Any) -> tuple[Tensor, ...]:
        """The function of these arguments, tensors or None; results and gradients belong to the caller."""
        tensors = [one for one in arguments if one is not None]
        if not self._fits(tensors):
            return self._function(*arguments)
        form = (operand(tensors[0][:0]).dtype, *map(_form, arguments))
        if form not in self._captured and len(self._captured) >= MOST_FORMS:
            return self._function(*arguments)
        with torch.autocast(self._device, enabled=False):  # whose cache cannot be captured
            if form not in self._captured:
                samples = tuple(one.detach().clone().requires_grad_(one.requires_grad) for one in tensors)
                present = [one is not None for one in arguments]
                self._captured[form] = self._capture(partial(_with_nones, self._function, present), samples)
            outputs = self._captured[form](*(_OwnGradient.apply(one) for one in tensors))  # type: ignore[no-untyped-call]
        own = tuple(one.clone() for one in outputs)
        node = next((one.grad_fn for one in outputs if one.grad_fn is not None), None)
        if node is not None:
            self._awaits_backward = True
            node.register_hook(self._after_backward)
        return own

    def _fits(self, arguments: Sequence[Any]) -> bool:
        if not _wanted.get() or self._awaits_backward or not torch.is_grad_enabled():
            return False
        return all(isinstance(one, Tensor) and one.device.type == self._device for one in arguments)

    def _after_backward(self, *_: Any) -> None:
        self._awaits_backward = False


def _form(argument: Tensor | None) -> Any:
    return None if argument is None else (argument.shape, argument.dtype, argument.requires_grad)


def _with_nones(function: Function, present: Sequence[bool], *tensors: Tensor) -> tuple[Tensor, ...]:
    given = iter(tensors)
    return function(*(next(given) if is_present else None for is_present in present))


class _OwnGradient(torch.autograd.Function):
    """The same tensor, whose gradient is a copy: that of a graph is overwritten by the next replay."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor) -> Tensor:
        return tensor.view_as(tensor)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        return gradients[0].clone()
