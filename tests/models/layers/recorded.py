"""CUDA graphs without CUDA: ``torch.cuda.make_graphed_callables`` itself, over recordings that are played on a CPU.

A recording has the rules of a graph. Every operation is done again on the same memory, in the same order, whatever
Python would decide by now; what was allocated in it holds nothing when it is played again; the graphs of one pool share
memory, so playing one of them destroys what the others have left; random numbers and waiting are refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from treelm.models.layers.graphs import GraphedFunction

_WAITS = {"_local_scalar_dense", "nonzero", "masked_select", "equal", "is_nonzero", "_unique2"}


class Recording:
    """Stands in for ``torch.cuda.CUDAGraph``."""

    num_played = 0  # of all together

    def __init__(self) -> None:
        self.calls: list[tuple[Any, Any, Any, list[Tensor]]] = []  # operation, arguments, and what they gave anew
        self.others: list[Recording] = []

    @torch.no_grad()
    def replay(self) -> None:
        Recording.num_played += 1
        for other in self.others:
            other.forget()
        for operation, args, kwargs, kept in self.calls:
            found = [one for one in tree_leaves(operation(*args, **kwargs)) if isinstance(one, Tensor)]
            for old, new in zip(kept, found, strict=False):
                old.copy_(new.fill_(torch.nan) if "empty" in str(operation) and new.is_floating_point() else new)

    @torch.no_grad()
    def forget(self) -> None:
        """Another graph has used the memory."""
        for tensor in (one for *_, kept in self.calls for one in kept if one.is_floating_point()):
            tensor.fill_(torch.nan)


class _Recorder(TorchDispatchMode):
    def __init__(self, recording: Recording) -> None:
        super().__init__()
        self._calls = recording.calls

    def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        assert operation.overloadpacket.__name__ not in _WAITS, f"{operation} waits"
        assert torch.Tag.nondeterministic_seeded not in operation.tags, f"{operation} draws"
        kwargs = kwargs or {}
        given = {one.untyped_storage().data_ptr() for one in tree_leaves((args, kwargs)) if isinstance(one, Tensor)}
        found = operation(*args, **kwargs)
        kept = [one for one in tree_leaves(found) if isinstance(one, Tensor)]
        if operation._schema.is_mutable:
            self._calls.append((operation, args, kwargs, []))
        elif not any(one.untyped_storage().data_ptr() in given for one in kept):  # views are there anyway
            self._calls.append((operation, args, kwargs, kept))
        return found


@contextmanager
def recorded_graphs() -> Iterator[type[Recording]]:
    """Within this context torch captures recordings."""
    pools: dict[Any, list[Recording]] = {}

    @contextmanager
    def record(recording: Recording, pool: Any, **_: Any) -> Iterator[None]:  # newer releases of torch name a stream
        graphs = pools.setdefault(pool, [])
        graphs.append(recording)
        for number, one in enumerate(graphs):  # a forward and a backward pass belong together
            one.others = [other for place, other in enumerate(graphs) if place // 2 != number // 2]
        with _Recorder(recording):
            yield

    Recording.num_played = 0
    stands_in = {"CUDAGraph": Recording, "graph": record, "graph_pool_handle": object, "synchronize": lambda: None}
    streams = {"Stream": object, "stream": lambda stream: nullcontext()}
    with mock.patch.multiple(torch.cuda, **stands_in, **streams):
        yield Recording


def captured_by(network: nn.Module, device: str) -> None:
    """Let all loops of a network that are captured on a GPU be captured on another device."""
    for module in network.modules():
        for name, value in list(vars(module).items()):
            if isinstance(value, GraphedFunction):
                setattr(module, name, GraphedFunction(value._function, device=device))


def capture_on_cpu(network: nn.Module) -> None:
    """The same on a CPU."""
    captured_by(network, "cpu")
