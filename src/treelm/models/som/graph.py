"""Packed positions of a batch, and the graph of what the memory composes: all that follows from decisions alone.

Positions are packed by time, without padding. A sentence of n tokens has n + 1 of them: position 0 reads the sentence
boundary ``<s>``, position t the t-th token; position t predicts token t + 1 and the last one the boundary again
(``</s>``). Sentences are sorted by length, longest first, so those that are still alive at position t are the first
``num_alive[t]`` rows, and the packed number of position t of row b is ``offsets[t] + b``.

Every vector has a number in one bank: first the inputs x (as many as there are positions), then the results of the
cell, in the order in which they are made. Node i is cell(first[i], second[i]): ``first`` is the candidate right below
and ``second`` the memory's vector in the slot (Eq. 3, Shen et al. 2021). Only occupied slots are computed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from treelm.models.layers.levels import Schedule, schedule, starts

IntArray = NDArray[np.int64]
NONE = -1


@dataclass(frozen=True, kw_only=True, slots=True)
class PackedLayout:
    """The packed order of a batch. "Row" means a sentence in order of length."""

    sentences: IntArray  # (B,) the sentence of each row
    num_tokens: IntArray  # (B,) of each row
    num_alive: IntArray  # (T,) rows that have a position t
    offsets: IntArray  # (T + 1,)

    @property
    def num_positions(self) -> int:
        """Positions in all (P)."""
        return int(self.offsets[-1])

    @property
    def num_steps(self) -> int:
        """Positions of the longest sentence (T)."""
        return len(self.num_alive)

    def slice(self, t: int) -> slice:
        """The packed numbers of position t of all rows that have it."""
        return slice(int(self.offsets[t]), int(self.offsets[t + 1]))

    def rows(self) -> IntArray:
        """The row of every position: (P,)."""
        return np.arange(self.num_positions) - np.repeat(self.offsets[:-1], self.num_alive)

    def times(self) -> IntArray:
        """t of every position: (P,)."""
        return np.repeat(np.arange(self.num_steps), self.num_alive)

    def previous(self) -> IntArray:
        """The position before, in the same sentence, for every position from t = 1 on: (P - B,)."""
        first = int(self.num_alive[0])
        times = self.times()[first:]
        return self.offsets[times - 1] + self.rows()[first:]

    def of_row(self, row: int) -> IntArray:
        """The packed numbers of one row's positions, by time."""
        return self.offsets[: int(self.num_tokens[row]) + 1] + row

    def pack(self, padded: IntArray) -> IntArray:
        """Values (B, at least T) by sentence and time, in packed order: (P,)."""
        return padded[self.sentences[self.rows()], self.times()]


def lay_out(token_offsets: IntArray) -> PackedLayout:
    """The layout of sentences whose tokens are bounded by these offsets (B + 1,)."""
    lengths = np.diff(token_offsets)
    order = np.argsort(-lengths, kind="stable")
    steps = np.arange(int(lengths.max()) + 1) if len(lengths) else np.zeros(0, np.int64)
    num_alive = (lengths[:, None] >= steps[None]).sum(0)
    return PackedLayout(sentences=order, num_tokens=lengths[order], num_alive=num_alive, offsets=starts(num_alive))


def pad(values: IntArray, token_offsets: IntArray, *, first: int, last: int) -> IntArray:
    """Flat values of tokens as (B, longest + 2): ``first``, the tokens of the sentence, then ``last`` to the end."""
    lengths = np.diff(token_offsets)
    padded = np.full((len(lengths), int(lengths.max(initial=0)) + 2), last, np.int64)
    padded[:, 0] = first
    sentence = np.repeat(np.arange(len(lengths)), lengths)
    padded[sentence, np.arange(len(values)) - token_offsets[sentence] + 1] = values
    return padded


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryGraph:
    """Compositions that a batch's decisions determine. Vectors are numbers in the bank."""

    decisions: IntArray  # (P,) theta
    first: IntArray  # (nodes,)
    second: IntArray  # (nodes,)
    candidates: IntArray  # (P, N) the vector of each slot's candidate, NONE where the slot is empty
    written: IntArray  # (P,) the vector that was written to slot theta of the memory, NONE at position 0
    num_nodes: IntArray  # (T,) made at each step

    def schedule(self) -> Schedule:
        """The nodes by level."""
        num_inputs = len(self.decisions)
        return schedule(np.stack([self.first, self.second], 1) - num_inputs)

    def in_order(self, order: Schedule) -> MemoryGraph:
        """The same graph with nodes numbered as a schedule orders them."""
        num_inputs = len(self.decisions)
        number = np.concatenate([np.arange(num_inputs), num_inputs + order.position, [NONE]])  # number[-1] is NONE
        return MemoryGraph(
            decisions=self.decisions,
            first=number[self.first[order.order]],
            second=number[self.second[order.order]],
            candidates=number[self.candidates],
            written=number[self.written],
            num_nodes=self.num_nodes,
        )


class GraphBuilder:
    """Builds the graph step by step, while decisions are being made."""

    def __init__(self, layout: PackedLayout, num_slots: int) -> None:
        """Start with position 0 of every sentence: its input is the candidate of slot N - 1."""
        num_rows = len(layout.sentences)
        self._layout, self._num_slots = layout, num_slots
        self._memory = np.full((num_rows, num_slots), NONE)
        self.candidates = np.full((layout.num_positions, num_slots), NONE)
        self.candidates[:num_rows, num_slots - 1] = np.arange(num_rows)
        self._decisions = np.full(layout.num_positions, num_slots)
        self._written = np.full(layout.num_positions, NONE)
        self._first: list[IntArray] = []
        self._second: list[IntArray] = []
        self._num_nodes = np.zeros(layout.num_steps, np.int64)
        self._total = 0

    def step(self, t: int, decisions: IntArray) -> Iterator[tuple[IntArray, IntArray]]:
        """Take the decisions of step t >= 1 and yield its nodes, one slot a sentence at a time, as (first, second).

        The k-th yield holds slot theta + k of the sentences that have it: deepest sentences first, so a shorter yield
        continues the first rows of the one before. Numbers are given out in the order of the yields.
        """
        here = self._layout.slice(t)
        rows = np.arange(len(decisions))
        before = int(self._layout.offsets[t - 1])
        written = self.candidates[before + rows, decisions]
        self._memory[rows, decisions] = written
        self._decisions[here], self._written[here] = decisions, written
        inputs = here.start + rows
        is_kept = decisions > 0  # else the input stands in no slot and only lives on in candidate 0
        self.candidates[inputs[is_kept], decisions[is_kept] - 1] = inputs[is_kept]
        order = np.argsort(decisions, kind="stable")
        lowest = decisions[order]
        below = inputs[order]
        for height in range(self._num_slots - int(lowest[0])):
            count = int(np.searchsorted(lowest, self._num_slots - height))
            row, slot = order[:count], lowest[:count] + height
            second = self._memory[row, slot]
            yield below[:count], second
            first, below = below[:count], self._layout.num_positions + self._total + np.arange(count)
            self.candidates[here.start + row, slot] = below
            self._first.append(first)
            self._second.append(second)
            self._num_nodes[t] += count
            self._total += count

    def build(self) -> MemoryGraph:
        """The graph of all steps taken."""
        empty = np.zeros(0, np.int64)
        return MemoryGraph(
            decisions=self._decisions,
            first=np.concatenate([empty, *self._first]),
            second=np.concatenate([empty, *self._second]),
            candidates=self.candidates,
            written=self._written,
            num_nodes=self._num_nodes,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class PredictionGraph:
    """Evaluations of the prediction network (Eqs. 5-6): node i is pcell(first[i], second[i]).

    Writing slot theta renews one prefix state, the state after the slots N - 1 .. theta; the others stay. So a position
    costs one prediction and at most one prefix state. Where the slot chosen for prediction is the one that is written
    next, the prediction *is* the next prefix state. The bank starts with a zero vector, then the memory's bank.
    """

    first: IntArray
    second: IntArray
    offsets: IntArray  # of levels: a node's level is the number of slots above its own
    predictions: IntArray  # (P,) the bank's number of each position's prediction


def prediction_graph(graph: MemoryGraph, layout: PackedLayout, choices: IntArray, num_slots: int) -> PredictionGraph:
    """The graph for slots chosen for prediction, theta' (P,)."""
    parents, prefixes = _prefixes(graph, layout, num_slots)
    wanted = np.take_along_axis(prefixes, choices[:, None] + 1, 1)[:, 0]
    values = np.take_along_axis(graph.candidates, choices[:, None], 1)[:, 0]
    events, sharing, shared = _events(graph, layout, choices, _needed(parents, wanted))
    slots = np.concatenate([graph.decisions[events], choices])
    order = np.argsort(-slots, kind="stable")
    num_leaves = 1 + len(graph.decisions) + len(graph.first)
    position = np.empty_like(order)
    position[order] = num_leaves + np.arange(len(order))
    predictions = position[len(events) :]
    number = np.zeros(len(parents) + 1, np.int64)  # of prefix states; number[NONE], the last, is the zero vector's
    number[events] = position[: len(events)]
    number[sharing] = predictions[shared]
    return PredictionGraph(
        first=np.concatenate([number[parents[events]], number[wanted]])[order],
        second=1 + np.concatenate([graph.written[events], values])[order],
        offsets=starts(np.bincount(num_slots - 1 - slots)),
        predictions=predictions,
    )


def _events(
    graph: MemoryGraph, layout: PackedLayout, choices: IntArray, needed: IntArray
) -> tuple[IntArray, IntArray, IntArray]:
    """Positions that need a prefix state of their own; those that share one; and whose prediction these share."""
    num_first = int(layout.num_alive[0])  # needed positions have one before
    before = layout.previous()[needed - num_first]
    is_shared = choices[before] == graph.decisions[needed]
    return needed[~is_shared], needed[is_shared], before[is_shared]


def _prefixes(graph: MemoryGraph, layout: PackedLayout, num_slots: int) -> tuple[IntArray, IntArray]:
    """Find the position whose prefix state each position continues (P,), and all current ones (P, N + 1)."""
    parents = np.full(layout.num_positions, NONE)
    prefixes = np.full((layout.num_positions, num_slots + 1), NONE)
    current = np.full((len(layout.sentences), num_slots + 1), NONE)
    for t in range(1, layout.num_steps):
        here = layout.slice(t)
        decisions = graph.decisions[here]
        rows = np.arange(len(decisions))
        parents[here] = current[rows, decisions + 1]
        current[rows, decisions] = here.start + rows
        prefixes[here] = current[: len(rows)]
    return parents, prefixes


def _needed(parents: IntArray, wanted: IntArray) -> IntArray:
    """The prefix states that some prediction stands on."""
    is_needed = np.zeros(len(parents), bool)
    frontier = np.unique(wanted[wanted >= 0])
    while len(frontier):
        is_needed[frontier] = True
        frontier = np.unique(parents[frontier])
        frontier = frontier[frontier >= 0]
        frontier = frontier[~is_needed[frontier]]
    return np.flatnonzero(is_needed)
