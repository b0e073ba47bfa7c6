"""The actions of every analysis, as a tree of back-pointers."""

from __future__ import annotations

import numpy as np

from treelm.models.rnng.search.rows import IntRows, Ints, renumbering

PREVIOUS, ACTION = 0, 1


class Histories:
    """Rows (row before, action). A history is the number of its last row; -1 is the empty one."""

    def __init__(self) -> None:
        self._rows = IntRows(2)

    def __len__(self) -> int:
        return len(self._rows)

    def append(self, previous: Ints, actions: Ints) -> Ints:
        """One more action after each history; returns the new histories."""
        return self._rows.append(np.stack([previous, actions], 1))

    def actions(self, histories: Ints) -> list[list[int]]:
        """All actions of each history, first to last."""
        rows: list[list[int]] = self._rows.all.tolist()
        return [_walk(rows, history) for history in histories.tolist()]

    def keep(self, histories: Ints) -> Ints:
        """Drop what these do not need; returns the new number of every old row."""
        rows = self._rows.all
        marked = np.zeros(len(rows), np.bool_)
        current = histories[histories >= 0]
        while len(current):
            marked[current] = True
            current = rows[current, PREVIOUS]
            current = current[current >= 0]
            current = current[~marked[current]]
        new = renumbering(marked)
        self._rows.keep(marked)
        rows = self._rows.all
        has_previous = rows[:, PREVIOUS] >= 0
        rows[has_previous, PREVIOUS] = new[rows[has_previous, PREVIOUS]]
        return new

    def copy(self) -> Histories:
        """An independent copy."""
        new = Histories()
        new._rows = self._rows.copy()
        return new


def _walk(rows: list[list[int]], history: int) -> list[int]:
    found = []
    while history >= 0:
        history, action = rows[history]
        found.append(action)
    return found[::-1]
