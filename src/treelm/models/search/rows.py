"""Growable matrices: float rows in torch, integer rows in NumPy.

Integer bookkeeping is done in NumPy, where a small operation costs a fraction of what it costs in torch; everything
that multiplies matrices is in torch.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from treelm.models.layers.transfer import to_device

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


BLOCK = 256  # rows of one matrix product; with what is done to them before and after, they fit into a core's cache
ROUND = 16  # rows of the smallest product


def rounded(num_rows: int) -> int:
    """Row counts are rounded up before a matrix product, so that a row never depends on how many others there are.

    ``products`` cuts them into blocks for which this holds.
    """
    return num_rows + -num_rows % ROUND


@cache
def blocks(num_rows: int, size: int = BLOCK) -> tuple[slice, ...]:
    """Slices of at most ``size`` rows: larger products are no faster, take more memory, and are more shapes."""
    return tuple(slice(start, min(start + size, num_rows)) for start in range(0, num_rows, size))


def padded(index: Ints) -> Ints:
    """An index of rows, lengthened to a round number by repeating row 0."""
    missing = rounded(len(index)) - len(index)
    return np.concatenate([index, np.zeros(missing, np.int64)]) if missing else index


def padded_rows(rows: Tensor) -> Tensor:
    """A matrix, lengthened to a round number of rows by zeros."""
    missing = rounded(rows.shape[0]) - rows.shape[0]
    return torch.cat([rows, rows.new_zeros(missing, rows.shape[1])]) if missing else rows


def as_index(index: Ints, like: Tensor) -> Tensor:
    """An index on the device of ``like``."""
    return to_device(index, like.device)


class Rows:
    """A growable float matrix on one device; rows are appended and read by index."""

    def __init__(self, width: int, like: Tensor, capacity: int = 256) -> None:
        """An empty matrix with the type and device of ``like``; room that is never used takes no memory on a CPU."""
        self._least = capacity
        self._data = like.new_empty((capacity, width))
        self._length = 0

    def __len__(self) -> int:
        return self._length

    @property
    def all(self) -> Tensor:
        """The rows in use, as a view."""
        return self._data[: self._length]

    def get(self, index: Ints, columns: slice | None = None) -> Tensor:
        """A copy of the rows at ``index``, or of some columns of them."""
        data = self._data if columns is None else self._data[:, columns]
        return data.index_select(0, to_device(index, data.device))

    def append(self, rows: Tensor) -> int:
        """Copy rows to the end; returns the number of the first."""
        self.reserve(rows.shape[0]).copy_(rows)
        return self._length - rows.shape[0]

    def reserve(self, num_rows: int, used: int | None = None) -> Tensor:
        """Room for ``num_rows`` rows that the caller writes, of which the first ``used`` are kept."""
        start, end = self._length, self._length + num_rows
        if end > self._data.shape[0]:
            grown = self._data.new_empty((max(end, self._data.shape[0] * 5 // 4), self._data.shape[1]))
            grown[:start] = self._data[:start]
            self._data = grown
        self._length = end if used is None else start + used
        return self._data[start:end]

    def keep(self, index: Ints) -> None:
        """Keep the rows at ``index``, in that order, and drop the others.

        The room of a word is kept for the next one, which grows to about the same size; what is far more is given back.
        """
        rows, capacity = self.get(index), max(2 * self._length, self._least)
        if self._data.shape[0] > 2 * capacity:
            self._data = self._data.new_empty((capacity, self._data.shape[1]))
        self._length = len(index)
        self._data[: self._length] = rows

    def copy(self) -> Rows:
        """An independent copy."""
        new = object.__new__(Rows)
        new._data, new._length, new._least = self.all.clone(), self._length, self._least
        return new


class IntRows:
    """A growable integer matrix whose columns have names (see the module that uses it)."""

    def __init__(self, num_columns: int, capacity: int = 1024) -> None:
        """An empty matrix."""
        self._data = np.empty((capacity, num_columns), np.int64)
        self._length = 0

    def __len__(self) -> int:
        return self._length

    @property
    def all(self) -> Ints:
        """The rows in use, as a view that may be written to."""
        return self._data[: self._length]

    def append(self, rows: Ints) -> Ints:
        """Copy rows to the end; returns their numbers."""
        start, end = self._length, self._length + len(rows)
        if end > len(self._data):
            grown = np.empty((max(end, len(self._data) * 3 // 2), self._data.shape[1]), np.int64)
            grown[:start] = self._data[:start]
            self._data = grown
        self._data[start:end] = rows
        self._length = end
        return np.arange(start, end)

    def keep(self, index: Ints | Bools) -> None:
        """Keep the rows at ``index`` and drop the others."""
        rows = self.all[index]
        self._data = np.empty((2 * len(rows) + 512, rows.shape[1]), np.int64)
        self._length = len(rows)
        self._data[: self._length] = rows

    def copy(self) -> IntRows:
        """An independent copy."""
        new = object.__new__(IntRows)
        new._data, new._length = self.all.copy(), self._length
        return new


def renumbering(kept: Bools) -> Ints:
    """For every old row that is kept, its new number."""
    return np.cumsum(kept) - 1


def renumbered(new: Ints, old: Ints) -> Ints:
    """The new numbers of old rows; -1 stays -1."""
    if len(new) == 0:
        return old
    return np.where(old < 0, -1, new[old])
