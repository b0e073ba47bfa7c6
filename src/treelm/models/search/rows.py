"""Growable matrices whose rows are appended and read by number: floats in torch, integers in NumPy.

Integers are kept in NumPy, where a small operation takes a fraction of its time in torch; whatever multiplies matrices
is in torch.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from treelm.models.layers.devices import to_device

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


def as_index(index: Ints, like: Tensor) -> Tensor:
    """An index on the device of ``like``."""
    return to_device(index, like.device)


class FloatRows:
    """A growable matrix of floats on one device, whose rows are appended and read by index."""

    def __init__(self, width: int, like: Tensor, capacity: int = 256) -> None:
        """Start without rows, in the type and on the device of ``like``; unused capacity takes no memory on a CPU."""
        self._least = capacity
        self._data = like.new_empty((capacity, width))
        self._length = 0

    def __len__(self) -> int:
        """Number of rows in use."""
        return self._length

    @property
    def all(self) -> Tensor:
        """The rows in use, as a view."""
        return self._data[: self._length]

    def get(self, index: Ints, columns: slice | None = None) -> Tensor:
        """A copy of the rows at ``index``, or of some columns of them."""
        data = self._data if columns is None else self._data[:, columns]
        return data.index_select(0, to_device(index, data.device))

    def get_lists(self, index: Tensor) -> Tensor:
        """A copy of the rows at ``index`` (n, S): (n, S, width). Some may have been reserved and not kept."""
        return self._data.index_select(0, index.flatten()).view(*index.shape, self._data.shape[1])

    def append(self, rows: Tensor) -> int:
        """Copy rows to the end; returns the number of the first."""
        self.reserve(rows.shape[0]).copy_(rows)
        return self._length - rows.shape[0]

    def reserve(self, num_rows: int, used: int | None = None) -> Tensor:
        """Memory at the end for ``num_rows`` rows, which the caller writes; the first ``used`` of them are kept."""
        start, end = self._length, self._length + num_rows
        if end > self._data.shape[0]:
            grown = self._data.new_empty((max(end, self._data.shape[0] * 5 // 4), self._data.shape[1]))
            grown[:start] = self._data[:start]
            self._data = grown
        self._length = end if used is None else start + used
        return self._data[start:end]

    def keep(self, index: Ints) -> None:
        """Keep the rows at ``index``, in that order, and drop the others.

        Memory is kept for the next word, which needs about as much; only far more than that is freed.
        """
        rows, capacity = self.get(index), max(2 * self._length, self._least)
        if self._data.shape[0] > 2 * capacity:
            self._data = self._data.new_empty((capacity, self._data.shape[1]))
        self._length = len(index)
        self._data[: self._length] = rows

    def copy(self) -> FloatRows:
        """An independent copy."""
        new = object.__new__(FloatRows)
        new._data, new._length, new._least = self.all.clone(), self._length, self._least
        return new


class IntRows:
    """A growable matrix of integers. The modules that use it name its columns."""

    def __init__(self, num_columns: int, capacity: int = 1024) -> None:
        """Start without rows."""
        self._data = np.empty((capacity, num_columns), np.int64)
        self._length = 0

    def __len__(self) -> int:
        """Number of rows in use."""
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

    def followed_by(self, rows: Ints) -> Ints:
        """The rows in use, followed by these, as a view that is valid until the next ``append``."""
        length = self._length
        self.append(rows)
        view, self._length = self.all, length
        return view

    def keep(self, index: Ints | Bools, start: int = 0) -> None:
        """Keep all rows before ``start`` and, of the others, those at ``index``, which counts from ``start``."""
        rows = self._data[start : self._length][index]
        self._length = start + len(rows)
        if start == 0:
            self._data = np.empty((2 * len(rows) + 512, rows.shape[1]), np.int64)
        self._data[start : self._length] = rows

    def copy(self) -> IntRows:
        """An independent copy."""
        new = object.__new__(IntRows)
        new._data, new._length = self.all.copy(), self._length
        return new


def renumbering(kept: Bools) -> Ints:
    """The new number of every old row, of which those marked are kept.

    >>> renumbering(np.array([True, False, True])).tolist()
    [0, 0, 1]
    """
    return np.cumsum(kept) - 1


def renumbered(new: Ints, old: Ints) -> Ints:
    """The new numbers of the old rows in ``old``; -1 stays -1."""
    if len(new) == 0:
        return old
    return np.where(old < 0, -1, new[old])


def mark_reachable(marked: Bools, previous: Ints) -> None:
    """Mark, in place, all rows that marked rows lead to; row i leads to row ``previous[i]``."""
    current = previous[marked]
    while len(current):
        current = current[~marked[current]]
        marked[current] = True
        current = previous[current]
