"""Partial analyses of a batch as arrays ordered by sentence, their histories, and reductions over each sentence.

Analyses of all sentences stand in flat arrays (n,), those of a sentence next to each other. ``Layout`` turns such an
array into a matrix with one row a sentence where a reduction needs one.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from treelm.models.layers.devices import to_device
from treelm.models.search.rows import Bools, Floats, IntRows, Ints, renumbered, renumbering

Table = TypeVar("Table", bound="AnalysisTable")


@dataclass(frozen=True)
class AnalysisTable:
    """n partial analyses, ordered by sentence."""

    sentence: Ints  # (n,)
    score: Floats  # (n,) log probability in nats; of arrivals, with the action that reaches the goal
    deficit: Floats  # (n,) the most nats by which it was ever below what was in play (see ``beam.py``)
    top: Ints  # (n,) its row in the machine
    history: Ints  # (n,) its row in ``Histories``, -1 before the first action; of arrivals, without the last action

    def __len__(self) -> int:
        """Number of analyses n."""
        return len(self.sentence)

    def take(self: Table, index: Ints | Bools) -> Table:
        """The analyses at ``index``, which holds numbers or is a mask."""
        rows = np.flatnonzero(index) if index.dtype == np.bool_ else index
        return type(self)(**{name: _taken(getattr(self, name), rows) for name in self.__dataclass_fields__})

    def ranked(self: Table) -> Table:
        """The analyses ordered by sentence, then by score, the best first; equal scores keep their order."""
        return self.take(np.lexsort((-self.score, self.sentence)))

    def forked(self: Table, sources: Ints, num_sentences: int) -> Table:
        """The analyses of the sentences ``sources`` (s,), of ``num_sentences``, as those of sentences 0 to s - 1."""
        counts = np.bincount(self.sentence, minlength=num_sentences)
        starts, wanted = np.cumsum(counts) - counts, counts[sources]
        index = np.arange(wanted.sum()) + np.repeat(starts[sources] - (np.cumsum(wanted) - wanted), wanted)
        return replace(self.take(index), sentence=np.repeat(np.arange(len(sources)), wanted))

    def renumbered(self: Table, rows: Ints, histories: Ints) -> Table:
        """The same analyses by the new numbers of rows and of histories, which ``Machine.collect`` returns."""
        return replace(self, top=rows[self.top], history=renumbered(histories, self.history))


@dataclass(frozen=True)
class Arrivals(AnalysisTable):
    """n analyses that have reached the goal of a search."""

    before: Floats  # (n,) score with the action that reaches the goal, but without the token's own log probability


@dataclass(frozen=True)
class Analyses(AnalysisTable):
    """Partial analyses with the distribution over their next action."""

    outputs: Tensor  # (n, E) the vectors from which the word head predicts the next token
    log_probs: Floats  # (n, A) of the next action, -inf where it is not valid


@dataclass(frozen=True)
class Endings:
    """n complete analyses, ordered by sentence, best first."""

    sentence: Ints  # (n,)
    score: Floats  # (n,)
    history: Ints  # (n,)
    log_mass: Floats  # (sentences,) log p(words so far, end), summed over the analyses

    @classmethod
    def of(cls, sentence: Ints, score: Floats, history: Ints, log_mass: Floats) -> Endings:
        """Order complete analyses by sentence, and by score within a sentence."""
        order = np.lexsort((-score, sentence))
        return cls(sentence[order], score[order], history[order], log_mass)


def no_arrivals() -> Arrivals:
    """An empty table of arrivals."""
    empty = np.empty(0, np.int64)
    return Arrivals(empty, np.empty(0), np.empty(0), empty, empty, np.empty(0))


def joined(groups: Sequence[Table]) -> Table:
    """All analyses of the groups, ordered by sentence."""
    parts = [group for group in groups if len(group)] or list(groups[:1])
    if len(parts) == 1:
        return parts[0]
    columns = {field.name: [getattr(part, field.name) for part in parts] for field in fields(parts[0])}
    joint: dict[str, Any] = {
        name: torch.cat(column) if isinstance(column[0], Tensor) else np.concatenate(column)
        for name, column in columns.items()
    }
    return replace(parts[0], **joint).take(np.argsort(joint["sentence"], kind="stable"))


def _taken(values: Any, rows: Ints | Bools) -> Any:
    return values.index_select(0, to_device(rows, values.device)) if isinstance(values, Tensor) else values[rows]


class Layout:
    """Where n flat entries, ordered by row, stand in a matrix; a row is a sentence, or a group of one."""

    def __init__(self, sentence: Ints, num_sentences: int) -> None:
        """Compute the places of entries of these sentences (n,), which must not descend."""
        counts = np.bincount(sentence, minlength=num_sentences)
        self.num_sentences = num_sentences
        self.width = int(counts.max(initial=0))
        self.starts = np.cumsum(counts) - counts
        self.row = sentence
        self.column = np.arange(len(sentence)) - self.starts[sentence]

    def pad(self, values: Floats) -> Floats:
        """(n,) or (n, m) -> a matrix (rows, width) or (rows, width * m), -inf where there is no entry."""
        if self.num_sentences == 1:
            return values.reshape(1, -1)
        out = np.full((self.num_sentences, self.width, *values.shape[1:]), -np.inf)
        out[self.row, self.column] = values
        return out.reshape(self.num_sentences, -1)

    def flat(self, rows: Ints, columns: Ints) -> Ints:
        """The numbers of the flat entries at these rows and columns of the matrix."""
        return self.starts[rows] + columns


def best(values: Floats, count: int) -> Bools:
    """Mark the ``count`` highest values of each row, without -inf; of equal values, the first ones."""
    width = values.shape[1]
    if width <= count:
        return values > -np.inf
    if count == 0:
        return np.zeros(values.shape, np.bool_)
    lowest = np.partition(values, width - count, axis=1)[:, width - count, None]
    chosen: Bools = values > lowest
    ties = (values == lowest) & (lowest > -np.inf)
    missing = count - chosen.sum(1, keepdims=True)
    if (ties.sum(1, keepdims=True) > missing).any():
        ties &= np.cumsum(ties, 1) <= missing
    either: Bools = chosen | ties
    return either


def nth_best(values: Floats, count: int) -> Floats:
    """The ``count``-th highest value of each row (rows,), -inf where there are fewer; ``count`` is at least 1."""
    width = values.shape[1]
    if width < count:
        return np.full(len(values), -np.inf)
    return np.partition(values, width - count, axis=1)[:, width - count]


def log_sums(sentence: Ints, scores: Floats, num_sentences: int) -> Floats:
    """log of the sum of exp(score) over each sentence: (sentences,), -inf for a sentence without scores."""
    highest = np.full(num_sentences, -np.inf)
    np.maximum.at(highest, sentence, scores)
    shift = np.where(np.isfinite(highest), highest, 0.0)
    with np.errstate(divide="ignore"):
        sums: Floats = np.log(np.bincount(sentence, np.exp(scores - shift[sentence]), num_sentences))
    return sums + shift


PREVIOUS, ACTION = 0, 1  # columns

_ROOM = 1 << 11  # so many rows are kept without looking for unused ones


class Histories:
    """The actions of all analyses, in a table of rows (row before, action), so that common beginnings are shared.

    A history is the number of its last row; -1 is the empty history.

    >>> histories = Histories()
    >>> opened = histories.append(np.array([-1]), np.array([2]))  # action 2 after the empty history
    >>> both = histories.append(np.repeat(opened, 2), np.array([0, 3]))  # 0 and, in another analysis, 3 after it
    >>> histories.actions(both), len(histories)
    ([[2, 0], [2, 3]], 3)
    """

    def __init__(self) -> None:
        """Begin without rows."""
        self._rows = IntRows(2)
        self._num_old = 0  # rows that an earlier call of ``keep`` has kept
        self._most = _ROOM  # with more rows, ``keep`` looks for unused ones among those too

    def __len__(self) -> int:
        """Number of rows, unused ones included."""
        return len(self._rows)

    def append(self, previous: Ints, actions: Ints) -> Ints:
        """Add one action to each history; returns the new histories (n,)."""
        return self._rows.append(np.stack([previous, actions], 1))

    def last(self, histories: Ints) -> Ints:
        """The last action of each history: (n,). No history may be empty."""
        actions: Ints = self._rows.all[histories, ACTION]
        return actions

    def actions(self, histories: Ints) -> list[list[int]]:
        """All actions of each history, first to last."""
        rows: list[list[int]] = self._rows.all.tolist()
        return [_walk(rows, history) for history in histories.tolist()]

    def count_since(self, histories: Ints, stop: int, weights: Ints) -> tuple[Ints, Ints]:
        """The number of actions after each history's last ``stop``, and the sum of their ``weights`` (A,): two (n,)."""
        rows = self._rows.all
        counts, sums = np.zeros(len(histories), np.int64), np.zeros(len(histories), np.int64)
        places, current = np.flatnonzero(histories >= 0), histories[histories >= 0]
        while len(places):
            actions = rows[current, ACTION]
            going = actions != stop
            places, current = places[going], current[going]
            counts[places] += 1
            sums[places] += weights[actions[going]]
            current = _before(rows, current)
            places, current = places[current >= 0], current[current >= 0]
        return counts, sums

    def keep(self, histories: Ints) -> Ints:
        """Drop all rows that these histories do not need; returns the new number of every old row.

        Rows that were kept before are mostly shared by all histories and as many as the sentence has actions. They are
        looked at only when there may be twice as many rows as needed, so that a word late in a sentence takes no
        longer than an early one.
        """
        rows = self._rows.all
        whole = len(rows) > self._most
        num_old = 0 if whole else self._num_old
        marked = np.zeros(len(rows) - num_old, np.bool_)
        current = histories[histories >= num_old]
        while len(current):
            marked[current - num_old] = True
            current = _before(rows, current)
            current = current[current >= num_old]
            current = current[~marked[current - num_old]]
        new = np.concatenate([np.arange(num_old), num_old + renumbering(marked)])
        self._rows.keep(marked, num_old)
        rows = self._rows.all
        rows[num_old:, PREVIOUS] = renumbered(new, rows[num_old:, PREVIOUS])
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
