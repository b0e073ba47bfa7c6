"""A limit on what building a network may allocate: a config that claims any size is refused before memory is filled."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from treelm.errors import InputError

_ROOM = 1 << 20  # elements beside those of the weights: buffers that are not saved, what initialisation needs
_FACTOR = 8  # initialisation may make copies


@contextmanager
def no_larger_than(tensors: Mapping[str, Tensor], *, where: str, remedy: str) -> Iterator[None]:
    """Raise ``InputError`` as soon as the block makes a tensor, or tensors together, much larger than these."""
    sizes = [tensor.numel() for tensor in tensors.values()]
    with _Limit(max(sizes, default=0) + _ROOM, _FACTOR * (sum(sizes) + _ROOM), where, remedy):
        yield


class _Limit(TorchDispatchMode):
    """Sees every operation of torch before it allocates."""

    def __init__(self, most: int, most_together: int, where: str, remedy: str) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._most, self._left, self._where, self._remedy = most, most_together, where, remedy

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        shape = args[0] if args else None
        if isinstance(shape, (list, tuple)) and all(isinstance(size, int) for size in shape):
            num_elements = math.prod(shape)
            self._left -= num_elements
            if num_elements > self._most or self._left < 0:
                found = f"a network with a tensor of {num_elements:,} numbers, far more than the weights hold"
                raise InputError(found, where=self._where, remedy=self._remedy)
        return func(*args, **(kwargs or {}))
