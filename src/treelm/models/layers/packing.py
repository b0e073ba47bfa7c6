"""Rows of a batch without padding: what works on each place alone runs on (n, D), attention on (B, T, D)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


@dataclass(frozen=True)
class Packing:
    """Places of n packed rows in a padded (B, T): sequence after sequence, each from its first step.

    Other places are padding, filled with some row. Nothing that is packed may depend on them.
    """

    places: Tensor  # (n,) b T + t
    sources: Tensor  # (B T,) the row at each place
    shape: tuple[int, int]  # B, T

    @classmethod
    def of(cls, lengths: NDArray[np.int64]) -> Packing:
        """Sequences of these lengths (B,), T that of the longest."""
        offsets, steps = np.concatenate(([0], np.cumsum(lengths)[:-1])), np.arange(lengths.max(initial=0))
        sources = np.minimum(offsets[:, None] + steps, offsets[:, None] + lengths[:, None] - 1)
        places = np.flatnonzero(steps < lengths[:, None])
        return cls(torch.from_numpy(places), torch.from_numpy(sources.ravel()), (len(lengths), len(steps)))

    def pad(self, rows: Tensor) -> Tensor:
        """(n, C) -> (B, T, C)."""
        (padded,) = self.pad_heads(rows, 1, 1)
        return padded[0]

    def pad_heads(self, rows: Tensor, num_heads: int, num_parts: int) -> tuple[Tensor, ...]:
        """Parts that lie side by side in rows (n, parts H d), of which each head has d units: (H, B, T, d) each."""
        index = self._by_head(num_heads, num_parts)
        parts: tuple[Tensor, ...] = _PadHeads.apply(rows, *index, num_heads, num_parts)  # type: ignore[no-untyped-call]
        return tuple(part.view(num_heads, *self.shape, -1) for part in parts)

    def pack_heads(self, padded: Tensor) -> Tensor:
        """(H, B, T, d) -> (n, H d)."""
        _, places = self._by_head(len(padded), 1)
        packed: Tensor = _PackHeads.apply(padded, places)  # type: ignore[no-untyped-call]
        return packed

    def _by_head(self, num_heads: int, num_parts: int) -> tuple[Tensor, Tensor]:
        """Sources of (parts, H, B T) places in rows of d units, (n, parts, H); and places (n, H) in (H, B T).

        Rows of d units are copied several times faster than slices of d units of longer rows.
        """
        if (num_heads, num_parts) not in self._indices:
            part, head = (torch.arange(number, device=self.sources.device) for number in (num_parts, num_heads))
            sources = (self.sources * num_parts + part[:, None])[:, None] * num_heads + head[:, None]
            places = self.places[:, None] + head * len(self.sources)
            self._indices[num_heads, num_parts] = sources.flatten(), places.flatten()
        return self._indices[num_heads, num_parts]

    @cached_property
    def _indices(self) -> dict[tuple[int, int], tuple[Tensor, Tensor]]:
        return {}


class _PadHeads(torch.autograd.Function):
    """Padding passes no gradient on: it is zero, since nothing depends on it."""

    @staticmethod
    def forward(
        ctx: Any, rows: Tensor, sources: Tensor, places: Tensor, num_heads: int, num_parts: int
    ) -> tuple[Tensor, ...]:
        ctx.save_for_backward(places)
        ctx.shape = len(rows), num_heads, rows.shape[1] // (num_parts * num_heads)
        padded = rows.reshape(-1, ctx.shape[2]).index_select(0, sources)
        return padded.view(num_parts, num_heads, -1, ctx.shape[2]).unbind()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None, None]:
        (places,) = ctx.saved_tensors
        num_rows, num_heads, size = ctx.shape
        d_rows = gradients[0].new_empty(num_rows, len(gradients), num_heads, size)
        for part, gradient in enumerate(gradients):
            d_rows[:, part] = gradient.reshape(-1, size).index_select(0, places).view(ctx.shape)
        return d_rows.flatten(1), None, None, None, None


class _PackHeads(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, padded: Tensor, places: Tensor) -> Tensor:
        ctx.save_for_backward(places)
        ctx.shape = padded.shape
        packed = padded.reshape(-1, padded.shape[-1]).index_select(0, places)
        return packed.view(-1, len(padded) * padded.shape[-1])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (places,) = ctx.saved_tensors
        rows = gradients[0].reshape(-1, ctx.shape[-1])
        return rows.new_zeros(ctx.shape[:-1].numel(), rows.shape[1]).index_copy_(0, places, rows).view(ctx.shape), None
