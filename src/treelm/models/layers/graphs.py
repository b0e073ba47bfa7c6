"""CUDA graphs: a loop over steps becomes one call on a GPU, both forward and backward.

They are used within the context ``cuda_graphs`` only, on GPUs, and in training.
"""

from __future__ import annotations

import logging
import warnings
import weakref
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from treelm.models.layers.precision import operand, setting

Function = Callable[..., tuple[Tensor, ...]]
_Graph = tuple[Function, tuple[bool, ...]]  # the replay, and which outputs have a gradient: in a replay all have one

MOST_FORMS = 64  # forms of arguments that are captured for one function; others are computed step by step

_wanted: ContextVar[bool] = ContextVar("cuda_graphs", default=False)
_logger = logging.getLogger(__name__)


def cuda_graphs(*, wanted: bool = True) -> AbstractContextManager[None]:
    """Within this context, let layers capture their loops and replay them."""
    return setting(_wanted, wanted)


def graphs_wanted() -> bool:
    """Whether layers capture their loops in this context."""
    return _wanted.get()


class GraphedFunction:
    """A differentiable function of tensors, captured once for each form (shapes, types, constants) of its arguments.

    Arguments that are not tensors are constants. The function must not draw random numbers, and every tensor that needs
    a gradient must be an argument. A replay overwrites what the backward pass of the replay before needs. Therefore the
    function itself is called until that pass has been computed, and wherever a graph cannot be used. Every place that
    calls the function needs an object of its own.
    """

    def __init__(self, function: Function, *, capture: Callable[..., Any] | None = None, device: str = "cuda") -> None:
        """``capture`` makes a replay from a function and samples of its tensors; by default torch captures on a GPU."""
        self._function, self._device, self._capture = function, device, capture
        self._captured: dict[Any, _Graph] = {}
        self._may_capture = True
        self._pool: Any = None
        self._in_flight: weakref.ref[_InFlight] | None = None

    def __reduce__(self) -> Any:
        """Copy or pickle without the graphs, whose memory belongs to one object."""
        return partial(GraphedFunction, self._function, capture=self._capture, device=self._device), ()

    def __call__(self, *arguments: Any) -> tuple[Tensor, ...]:
        """Call the function with tensors and hashable constants; results and gradients are copies."""
        graph = self._graph(arguments) if self._fits(arguments) else None
        if graph is None:
            return self._function(*arguments)
        replay, is_trained = graph
        outputs = replay(*map(_OwnGradient.apply, _tensors(arguments)))
        self._watch(outputs)
        kept = (one if trained else one.detach() for one, trained in zip(outputs, is_trained, strict=True))
        return tuple(one.clone() for one in kept)

    def _fits(self, arguments: Sequence[Any]) -> bool:
        if not _wanted.get() or not torch.is_grad_enabled() or self._awaits_backward():
            return False
        return all(one.device.type == self._device for one in _tensors(arguments))

    def _graph(self, arguments: Sequence[Any]) -> _Graph | None:
        """The graph for arguments of this form, captured now if it is new; None if it cannot be captured."""
        products: Any = torch.backends.cuda.matmul  # before torch 2.9 the first of these settings did not exist
        settings = getattr(products, "fp32_precision", None) or products.allow_tf32
        settings = settings, torch.are_deterministic_algorithms_enabled(), operand(_tensors(arguments)[0][:0]).dtype
        form = (*settings, *map(_form, arguments))
        if form not in self._captured and self._may_capture and len(self._captured) < MOST_FORMS:
            try:
                self._captured[form] = self._new_graph(arguments)
                if len(self._captured) == MOST_FORMS:
                    _logger.warning("%d CUDA graphs: loops of other shapes are computed step by step", MOST_FORMS)
            except torch.OutOfMemoryError:
                _logger.warning("no memory for another CUDA graph: a loop is computed step by step from now on")
                self._may_capture = False
                self._captured.clear()
        return self._captured.get(form)

    def _new_graph(self, arguments: Sequence[Any]) -> _Graph:
        constants = [None if isinstance(one, Tensor) else (one,) for one in arguments]
        is_trained: tuple[bool, ...] = ()

        def of_tensors(*tensors: Tensor) -> tuple[Tensor, ...]:
            nonlocal is_trained
            given = iter(tensors)
            outputs = self._function(*(next(given) if one is None else one[0] for one in constants))
            is_trained = tuple(one.requires_grad for one in outputs)
            return outputs

        samples = tuple(one.detach().clone().requires_grad_(one.requires_grad) for one in _tensors(arguments))
        with torch.autocast(self._device, enabled=False):  # whose cache cannot be captured
            replay = (self._capture or self._capture_on_gpu)(of_tensors, samples)
        return replay, is_trained

    def _capture_on_gpu(self, function: Callable[..., Any], samples: tuple[Tensor, ...]) -> Any:
        """Capture by ``torch.cuda.make_graphed_callables``, with one pool of memory for all forms.

        That is safe: no other form is replayed between the forward and the backward pass of a form, and all results of
        a replay are copied at once.
        """
        self._pool = torch.cuda.graph_pool_handle() if self._pool is None else self._pool
        with warnings.catch_warnings():  # it warms up on one stream and captures on another, which is joined to it
            warnings.filterwarnings("ignore", message="The AccumulateGrad node's stream does not match")
            return torch.cuda.make_graphed_callables(function, samples, pool=self._pool)

    def _watch(self, outputs: Sequence[Tensor]) -> None:
        """Observe when the backward pass of these outputs has been computed, or when it no longer can be."""
        node = next((one.grad_fn for one in outputs if one.grad_fn is not None), None)
        if node is not None:
            in_flight = _InFlight()
            node.register_hook(in_flight)
            self._in_flight = weakref.ref(in_flight)

    def _awaits_backward(self) -> bool:
        in_flight = None if self._in_flight is None else self._in_flight()
        return in_flight is not None and not in_flight.is_over


def has_graphs(network: nn.Module) -> bool:
    """Whether the network has a loop that can be captured."""
    return any(isinstance(value, GraphedFunction) for module in network.modules() for value in vars(module).values())


class _InFlight:
    """A hook that is called after a backward pass. Only the graph of autograd refers to it, so both end together."""

    is_over = False

    def __call__(self, *_: Any) -> None:
        """Record that the backward pass is over."""
        self.is_over = True


class _OwnGradient(torch.autograd.Function):
    """The identity, whose gradient is a copy: the next replay overwrites the gradient of a graph."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor) -> Tensor:
        return tensor.view_as(tensor)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        return gradients[0].clone()


def _tensors(arguments: Sequence[Any]) -> list[Tensor]:
    return [one for one in arguments if isinstance(one, Tensor)]


def _form(argument: Any) -> Any:
    if isinstance(argument, Tensor):
        return argument.shape, argument.dtype, argument.requires_grad, argument.device
    return type(argument), argument
