"""The actions of every analysis, as a tree of back-pointers."""

from __future__ import annotations

import copy

import numpy as np

from treelm.models.search.rows import IntRows, Ints, renumbering

PREVIOUS, ACTION = 0, 1

_ROOM = 1 << 11  # rows that are never worth a walk over everything


class Histories:
    """Rows (row before, action). A history is the number of its last row; -1 is the empty one."""

    def __init__(self) -> None:
        self._rows = IntRows(2)
        self._num_old = 0  # rows that ``keep`` has kept before
        self._most = _ROOM  # rows beyond which ``keep`` asks of the old ones, too, whether they are needed

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
        """Drop what these do not need; returns the new number of every old row.

        What was kept before is mostly what all survivors share, and it is as long as the sentence: it is walked only
        when there may be twice as much as is needed. So a word late in a sentence costs what an early one does.
        """
        rows = self._rows.all
        whole = len(rows) > self._most
        num_old = 0 if whole else self._num_old
        marked = np.zeros(len(rows), np.bool_)
        marked[:num_old] = True
        current = histories[histories >= num_old]
        while len(current):
            marked[current] = True
            current = _before(rows, current)
            current = current[current >= num_old]
            current = current[~marked[current]]
        new = renumbering(marked)
        self._rows.keep(marked)
        rows = self._rows.all
        has_previous = rows[:, PREVIOUS] >= 0
        rows[has_previous, PREVIOUS] = new[rows[has_previous, PREVIOUS]]
        self._num_old = len(rows)
        if whole:
            self._most = 2 * len(rows) + _ROOM
        return new

    def copy(self) -> Histories:
        """An independent copy."""
        new = copy.copy(self)
        new._rows = self._rows.copy()
        return new


def _before(rows: Ints, histories: Ints) -> Ints:
    """Each history without its last action."""
    before: Ints = rows[histories, PREVIOUS]
    return before


def _walk(rows: list[list[int]], history: int) -> list[int]:
    found = []
    while history >= 0:
        history, action = rows[history]
        found.append(action)
    return found[::-1]
