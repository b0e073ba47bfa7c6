"""Float64 copies of networks whose decisions are hard, for scores that do not depend on what else is computed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, Self, TypeVar

import torch
from torch import nn

DECIMALS = 9  # of scores in nats: far above the noise of float64, far below anything that matters

Network = TypeVar("Network", bound=nn.Module)


class ExactCopy(nn.Module, Generic[Network]):
    """Keeps a copy of a network while that stays in evaluation mode and its weights do not change.

    In float32 the last bits of a result depend on the shape of a batch, and could even tip a decision.

    A part of the network, so that ``network.train()`` and ``network.eval()`` reach it: both drop the copy, since
    torch's fused optimisers change weights without counting a version.
    """

    def __init__(self, dtype: torch.dtype = torch.float64) -> None:
        """Nothing is copied yet; copies will have weights of this type."""
        super().__init__()
        self._dtype = dtype
        self._kept: tuple[tuple[tuple[int, int], ...], Network] | None = None

    def train(self, mode: bool = True) -> Self:
        """Drops the copy."""
        self._kept = None
        return super().train(mode)

    def of(self, network: Network, build: Callable[[], Network]) -> Network:
        """The copy, in evaluation mode; ``build`` makes a network of the same sizes."""
        tensors = [*network.parameters(), *network.buffers()]
        versions = tuple((tensor.data_ptr(), tensor._version) for tensor in tensors)
        if self._kept is not None and self._kept[0] == versions:
            return self._kept[1]
        with torch.random.fork_rng(devices=[]):
            copy = build()
        copy.to(tensors[0].device, self._dtype).load_state_dict(network.state_dict())
        copy.eval().requires_grad_(False)
        self._kept = None if network.training else (versions, copy)
        return copy
