"""Rows of a batch without padding: what works on each place alone runs on (n, D), attention on (B, T, D)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor


@dataclass(frozen=True)
class Packing:
    """Places of n packed rows in a padded (B, T): sequence after sequence, each from its first step."""

    places: Tensor  # (n,) b T + t
    shape: tuple[int, int]  # B, T

    @staticmethod
    def places_of(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
        """Compute the places of sequences of these lengths (B,), T that of the longest."""
        starts = np.arange(len(lengths)) * lengths.max(initial=0)
        offsets = np.concatenate(([0], np.cumsum(lengths)[:-1]))
        places: NDArray[np.int64] = np.arange(lengths.sum()) + np.repeat(starts - offsets, lengths)
        return places

    def pad(self, rows: Tensor) -> Tensor:
        """(n, C) -> (B, T, C), zeros elsewhere."""
        padded = rows.new_zeros(self.shape[0] * self.shape[1], rows.shape[1]).index_copy(0, self.places, rows)
        return padded.view(*self.shape, -1)

    def pack(self, padded: Tensor) -> Tensor:
        """(B, T, C) -> (n, C)."""
        return padded.flatten(0, 1).index_select(0, self.places)
