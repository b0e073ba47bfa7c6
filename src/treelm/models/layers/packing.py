"""Rows of a batch without padding: what works on each place alone runs on (n, D), attention on (B, T, D)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


@dataclass(frozen=True)
class Packing:
    """Places of n packed rows in a padded (B, T): sequence after sequence, each from its first step.

    What stands at other places is nobody's: some row again. Nothing that is packed may depend on it.
    """

    places: Tensor  # (n,) b T + t
    sources: Tensor  # (B T,) the row at each place
    shape: tuple[int, int]  # B, T

    @staticmethod
    def indices(lengths: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Compute places and sources of sequences of these lengths (B,), T that of the longest."""
        offsets, steps = np.concatenate(([0], np.cumsum(lengths)[:-1])), np.arange(lengths.max(initial=0))
        sources = np.minimum(offsets[:, None] + steps, offsets[:, None] + lengths[:, None] - 1)
        return np.flatnonzero(steps < lengths[:, None]), sources.ravel()

    def pad(self, rows: Tensor) -> Tensor:
        """(n, C) -> (B, T, C)."""
        padded: Tensor = _Pad.apply(rows, self.places, self.sources)  # type: ignore[no-untyped-call]
        return padded.view(*self.shape, -1)

    def pack(self, padded: Tensor) -> Tensor:
        """(B, T, C) -> (n, C)."""
        return padded.flatten(0, 1).index_select(0, self.places)


class _Pad(torch.autograd.Function):
    """Has no gradient from nobody's places: zeros, since nothing depends on them."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, places: Tensor, sources: Tensor) -> Tensor:
        ctx.save_for_backward(places)
        return rows.index_select(0, sources)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        (places,) = ctx.saved_tensors
        return gradients[0].index_select(0, places), None, None
