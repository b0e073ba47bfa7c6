"""What positions see: all rows before them, and how deep each lies on the tape."""

from __future__ import annotations

import numpy as np

from treelm.models.search.attention import NONE, lists_of_seen
from treelm.models.search.rows import Ints


class Paths:
    """Paths by their numbers. Their arrays are never written to, so a shallow copy is an independent one.

    Columns are places in the sentence; n paths with room for S rows.
    """

    def __init__(self) -> None:
        """Begin without any."""
        self._rows = lists_of_seen(0, 0)
        self._depths = np.zeros_like(self._rows)

    def get(self, index: Ints, length: int) -> tuple[Ints, Ints]:
        """Copies of some with room for so many rows: the rows, NONE behind the last, and their depths (n, S)."""
        rows = lists_of_seen(len(index), length)
        depths, common = np.zeros_like(rows), min(rows.shape[1], self._rows.shape[1])
        rows[:, :common], depths[:, :common] = self._rows[index, :common], self._depths[index, :common]
        return rows, depths

    def append(self, rows: Ints, depths: Ints) -> Ints:
        """Add some (n, S); gives their numbers."""
        number = len(self._rows)
        width = max(rows.shape[1], self._rows.shape[1])
        old = self.get(np.arange(number), width)
        more = width - rows.shape[1]
        new = np.pad(rows, ((0, 0), (0, more)), constant_values=NONE), np.pad(depths, ((0, 0), (0, more)))
        self._rows, self._depths = (np.concatenate(pair) for pair in zip(old, new, strict=True))
        return np.arange(number, len(self._rows))

    def keep(self, index: Ints) -> None:
        """Keep those at ``index``, in that order, with the room that they need."""
        rows, depths = self._rows[index], self._depths[index]
        width = lists_of_seen(0, int((rows != NONE).sum(1).max(initial=0))).shape[1]
        self._rows, self._depths = rows[:, :width], depths[:, :width]

    def in_use(self) -> Ints:
        """All rows on any of them."""
        return np.unique(self._rows[self._rows != NONE])

    def renumber(self, new: Ints) -> None:
        """Take over new numbers of rows."""
        self._rows = np.where(self._rows == NONE, NONE, new[self._rows])
