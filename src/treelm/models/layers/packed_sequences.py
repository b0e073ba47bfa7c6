"""Sequences without padding: what works on each position alone runs on (n, D), attention on a padded (B, T, D).

>>> packing = Packing.of(np.array([2, 1]))  # two sequences, of rows 0, 1 and of row 2
>>> packing.places.tolist(), packing.sources.tolist(), packing.shape
([0, 1, 2], [0, 1, 2, 2], (2, 2))
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


@dataclass(frozen=True)
class Packing:
    """The places of n packed rows in a padded (B, T), where every sequence begins at its first step.

    Other places are padding, which holds the last row of the sequence again. No packed row may depend on them.
    """

    places: Tensor  # (n,) b T + t
    sources: Tensor  # (B T,) the row at each place
    shape: tuple[int, int]  # B, T

    @classmethod
    def of(cls, lengths: NDArray[np.int64]) -> Packing:
        """The packing of sequences of these lengths (B,); T is the longest."""
        offsets, steps = np.concatenate(([0], np.cumsum(lengths)[:-1])), np.arange(lengths.max(initial=0))
        sources = np.minimum(offsets[:, None] + steps, offsets[:, None] + lengths[:, None] - 1)
        places = np.flatnonzero(steps < lengths[:, None])
        return cls(torch.from_numpy(places), torch.from_numpy(sources.ravel()), (len(lengths), len(steps)))

    def pad(self, rows: Tensor) -> Tensor:
        """(n, C) -> (B, T, C)."""
        return rows.index_select(0, self.sources).view(*self.shape, -1)

    def pad_heads(self, rows: Tensor, num_heads: int, num_parts: int) -> tuple[Tensor, ...]:
        """Split rows (n, parts H d), such as queries, keys and values side by side, into padded parts (H, B, T, d)."""
        padded = rows.index_select(0, self.sources).view(*self.shape, num_parts, num_heads, -1)
        return padded.permute(2, 3, 0, 1, 4).contiguous().unbind()  # products are slower on what is not contiguous

    def pack_heads(self, padded: Tensor) -> Tensor:
        """(H, B, T, d) -> (n, H d)."""
        return padded.permute(1, 2, 0, 3).flatten(2).flatten(0, 1).index_select(0, self.places)
