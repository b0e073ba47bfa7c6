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
        (padded,) = self.pad_heads(rows, 1, 1)
        return padded[0]

    def pad_heads(self, rows: Tensor, num_heads: int, num_parts: int) -> tuple[Tensor, ...]:
        """Parts that lie side by side in rows (n, parts H d), of which each head has d units: (H, B, T, d) each."""
        index = self.places, self.sources
        parts: tuple[Tensor, ...] = _PadHeads.apply(rows, *index, num_heads, num_parts)  # type: ignore[no-untyped-call]
        return tuple(part.view(num_heads, *self.shape, -1) for part in parts)

    def pack_heads(self, padded: Tensor) -> Tensor:
        """(H, B, T, d) -> (n, H d)."""
        packed: Tensor = _PackHeads.apply(padded.flatten(1, 2), self.places)  # type: ignore[no-untyped-call]
        return packed


class _PadHeads(torch.autograd.Function):
    """Has no gradient from nobody's places: zeros, since nothing depends on them. One pass over the rows either way."""

    @staticmethod
    def forward(
        ctx: Any, rows: Tensor, places: Tensor, sources: Tensor, num_heads: int, num_parts: int
    ) -> tuple[Tensor, ...]:
        ctx.save_for_backward(places)
        parts = rows.view(len(rows), num_parts, num_heads, -1)
        return tuple(parts[:, part].transpose(0, 1).index_select(1, sources) for part in range(num_parts))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None, None]:
        (places,) = ctx.saved_tensors
        heads, _, size = gradients[0].shape
        d_rows = gradients[0].new_empty(len(places), len(gradients), heads, size)
        for part, gradient in enumerate(gradients):
            d_rows[:, part] = gradient.transpose(0, 1).index_select(0, places)
        return d_rows.flatten(1), None, None, None, None


class _PackHeads(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, padded: Tensor, places: Tensor) -> Tensor:
        ctx.save_for_backward(places)
        ctx.shape = padded.shape
        return padded.transpose(0, 1).index_select(0, places).flatten(1)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (places,) = ctx.saved_tensors
        heads, _, size = ctx.shape
        gradient = gradients[0].view(-1, heads, size).transpose(0, 1)
        return gradient.new_zeros(ctx.shape).index_copy_(1, places, gradient), None
