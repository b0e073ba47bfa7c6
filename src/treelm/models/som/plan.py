"""What the decisions of a batch determine: which vectors the cell composes, and in which order.

Positions are packed by time, without padding. A sentence of n tokens has n + 1 of them: position 0 reads the sentence
boundary ``<s>``, position t the t-th token; position t predicts token t + 1 and the last one the boundary again
(``</s>``). Sentences are sorted by length, longest first, so those that are still alive at position t are the first
``num_alive[t]`` rows, and the packed number of position t of row b is ``offsets[t] + b``.

Decision theta at t says where token t attaches: candidate theta of t - 1 is written to slot theta of the memory, the
input becomes candidate theta - 1, and candidates theta .. N - 1 are composed again, upwards. With theta = 0 the input
is in no slot but is composed into candidate 0.

Every vector has a number in one bank: first the inputs x (P, as many as there are positions), then the results of the
cell, in the order in which they are made. Node i is cell(first[i], second[i]): ``first`` is the candidate right below
and ``second`` the memory's vector in the slot (Eq. 3, Shen et al. 2021). Only occupied slots are computed.

For example, "<s> a b c" is read into N = 3 slots with the decisions 3, 2, 1, 2, which build (((<s> (a b)) c)):

    t  input  theta  memory written              candidates                     nodes made
    0  <s>    3      -                           2: x0                          -
    1  a      2      2: x0                       1: x1, 2: n0                   n0 = cell(x1, x0)
    2  b      1      1: x1                       0: x2, 1: n1, 2: n2            n1 = cell(x2, x1), n2 = cell(n1, x0)
    3  c      2      2: n2, which covers <s> a b 1: x3, 2: n3                   n3 = cell(x3, n2)

The bank is x0 x1 x2 x3 n0 n1 n2 n3. Level 0 has n0 and n1, level 1 has n2, level 2 has n3: of four nodes, two are
computed at once, and in a batch the same levels of all sentences are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from treelm.models.layers.devices import plan_to_device
from treelm.models.layers.levels import schedule, starts

IntArray = NDArray[np.int64]
NONE = -1


@dataclass(frozen=True, kw_only=True, slots=True)
class PackedLayout:
    """The packed order of a batch of B sentences: P positions, T of the longest. Row: a sentence in order of length."""

    sentences: IntArray  # (B,) the number in the batch of each row's sentence
    num_alive: IntArray  # (T,) rows that have a position t
    offsets: IntArray  # (T + 1,)
    rows: IntArray  # (P,) the row of every position
    times: IntArray  # (P,) t of every position

    def at_time(self, t: int) -> slice:
        """The packed numbers of position t of all rows that have it."""
        return slice(int(self.offsets[t]), int(self.offsets[t + 1]))

    def after(self, positions: IntArray) -> IntArray:
        """The position after each, in the same sentence."""
        return self.offsets[self.times[positions] + 1] + self.rows[positions]

    def previous(self) -> IntArray:
        """The position before, in the same sentence, for every position from t = 1 on: (P - B,)."""
        return self.before(np.arange(len(self.sentences), len(self.times)))

    def before(self, positions: IntArray) -> IntArray:
        """The position before each, in the same sentence."""
        return self.offsets[self.times[positions] - 1] + self.rows[positions]

    def pack(self, padded: IntArray) -> IntArray:
        """Values (B, at least T) by sentence and time, in packed order: (P,)."""
        return padded[self.sentences[self.rows], self.times]


def lay_out(token_offsets: IntArray) -> PackedLayout:
    """The layout of sentences whose tokens are bounded by these offsets (B + 1,)."""
    lengths = np.diff(token_offsets)
    num_alive = (lengths[:, None] >= np.arange(int(lengths.max(initial=-1)) + 1)).sum(0)
    offsets = starts(num_alive)
    times = np.repeat(np.arange(len(num_alive)), num_alive)
    return PackedLayout(
        sentences=np.argsort(-lengths, kind="stable"),
        num_alive=num_alive,
        offsets=offsets,
        rows=np.arange(len(times)) - offsets[times],
        times=times,
    )


def pad(values: IntArray, token_offsets: IntArray, *, first: int, last: int) -> IntArray:
    """Flat values of tokens as (B, longest + 2): ``first``, the tokens of the sentence, then ``last`` to the end."""
    lengths = np.diff(token_offsets)
    padded = np.full((len(lengths), int(lengths.max(initial=0)) + 2), last, np.int64)
    padded[:, 0] = first
    sentence = np.repeat(np.arange(len(lengths)), lengths)
    padded[sentence, np.arange(len(values)) - token_offsets[sentence] + 1] = values
    return padded


class CellGraph(NamedTuple):
    """n evaluations of a cell, numbered by level."""

    reads: Tensor  # (n, 2) the vectors in the bank that each one reads as h and m
    offsets: list[int]  # (levels + 1,) level k has the nodes offsets[k] to offsets[k + 1] - 1


class MemoryGraph:
    """Compositions of a batch, added step by step while decisions are being made. Vectors are numbers in the bank."""

    def __init__(self, layout: PackedLayout, num_slots: int) -> None:
        """Start with position 0 of every sentence: its input is the candidate of slot N - 1."""
        num_rows, num_positions = len(layout.sentences), len(layout.times)
        self._layout, self._num_slots = layout, num_slots
        self._memory = np.full((num_rows, num_slots), NONE)
        self._positions = np.arange(num_rows)  # (B,) the present one of each row
        self._num_left = np.bincount(layout.rows) - 1  # (B,) positions after it
        self._slot = np.full(num_rows, num_slots)  # (B,) the next slot to compose, N when all are
        self._below = np.full(num_rows, NONE)  # (B,) the candidate below it
        self.decisions = np.full(num_positions, num_slots)  # (P,) theta
        self.written = np.full(num_positions, NONE)  # (P,) the vector written to slot theta; NONE at position 0
        self.candidates = np.full((num_positions, num_slots), NONE)  # (P, N) NONE where the slot is empty
        self.candidates[:num_rows, num_slots - 1] = np.arange(num_rows)
        self._first, self._second = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
        self.size = num_positions  # of the bank

    def waiting(self) -> tuple[IntArray, IntArray]:
        """Rows that wait for their next decision, and the positions that it is about."""
        rows = np.flatnonzero((self._slot == self._num_slots) & (self._num_left > 0))
        return rows, self._layout.after(self._positions[rows])

    def pairs(self, positions: IntArray) -> tuple[IntArray, IntArray, IntArray]:
        """Pairs of one of n positions and an occupied slot before it: numbers among the n, slots, and candidates."""
        before = self.candidates[self._layout.before(positions)]
        rows, slots = np.nonzero(before >= 0)
        return rows, slots, before[rows, slots]

    def step(
        self, rows: IntArray, decisions: IntArray, *, together: bool = True
    ) -> Iterator[tuple[IntArray, IntArray]]:
        """Take decisions of all rows that wait and yield nodes, one slot a sentence at a time, as (first, second).

        The k-th yield, from 0, holds slot theta + k of the sentences that have it. Sentences are sorted by theta,
        lowest first, so a yield of n sentences continues the first n of the one before. Numbers are given out in the
        order of the yields. The step ends when all slots are composed or, unless ``together``, when those of the
        sentences are that have the most positions left; others then go on in the next step, while those decide.
        """
        before, here = self._positions[rows], self._layout.after(self._positions[rows])
        written = self.candidates[before, decisions]
        self._memory[rows, decisions] = written
        self.decisions[here], self.written[here] = decisions, written
        is_kept = decisions > 0  # else the input stands in no slot and only lives on in candidate 0
        self.candidates[here[is_kept], decisions[is_kept] - 1] = here[is_kept]
        self._positions[rows], self._slot[rows], self._below[rows] = here, decisions, here
        self._num_left[rows] -= 1
        order = np.argsort(self._slot, kind="stable")
        order = order[: np.searchsorted(self._slot[order], self._num_slots)]
        num_left, start_slot, below = self._num_left[order], self._slot[order], self._below[order]
        last = start_slot.min() if together else start_slot[num_left == num_left.max()].min()
        for k in range(self._num_slots - int(last)):
            count = int(np.searchsorted(start_slot, self._num_slots - k))
            row, slot = order[:count], start_slot[:count] + k
            first, second = below[:count], self._memory[row, slot]
            yield first, second
            below = self.size + np.arange(count)
            self.candidates[self._positions[row], slot] = below
            self._slot[row], self._below[row] = slot + 1, below
            self._first.append(first)
            self._second.append(second)
            self.size += count

    def by_level(self, device: torch.device) -> tuple[CellGraph, Tensor]:
        """Number the nodes by level; returns their graph, and the old number of each node among the nodes."""
        num_inputs = len(self.decisions)
        first, second = np.concatenate(self._first), np.concatenate(self._second)
        found = schedule(np.stack([first, second], 1) - num_inputs)
        number = np.concatenate([np.arange(num_inputs), num_inputs + found.position, [NONE]])  # number[NONE] is NONE
        self.candidates, self.written = number[self.candidates], number[self.written]
        reads = torch.from_numpy(number[np.stack([first, second], 1)[found.order]])
        return plan_to_device((CellGraph(reads, found.offsets.tolist()), torch.from_numpy(found.order)), device)


def prediction_graph(
    graph: MemoryGraph, layout: PackedLayout, choices: IntArray, num_slots: int, device: torch.device
) -> tuple[CellGraph, Tensor]:
    """The graph of the prediction network (Eq. 7), and the number of each prediction: (P,).

    It is for slots theta' (P,), which a second scorer guesses for the next decision. It reads slots N - 1 .. theta' + 1
    of the memory, then candidate theta'.

    Writing slot theta renews one prefix state, the state after the slots N - 1 .. theta; the others stay. So a position
    costs one prediction and at most one prefix state; a node's level is the number of slots above its own. Where the
    slot chosen for prediction is the one that is written next, the prediction *is* the next prefix state. Prefix states
    that no prediction stands on are left out. The bank starts with a zero vector, then the memory's bank.
    """
    parents, wanted = _prefixes(graph, layout, choices, num_slots)
    needed = _needed(parents, wanted)
    before = layout.previous()[needed - len(layout.sentences)]  # needed positions have one before
    is_shared = choices[before] == graph.decisions[needed]
    own = needed[~is_shared]  # positions with a prefix state that is no prediction
    slots = np.concatenate([graph.decisions[own], choices])
    order = np.argsort(-slots, kind="stable")
    position = np.empty_like(order)
    position[order] = 1 + graph.size + np.arange(len(order))
    predictions = position[len(own) :]
    number = np.zeros(len(parents) + 1, np.int64)  # of prefix states; number[NONE], the last, is the zero vector's
    number[own] = position[: len(own)]
    number[needed[is_shared]] = predictions[before[is_shared]]
    values = np.take_along_axis(graph.candidates, choices[:, None], 1)[:, 0]
    first = np.concatenate([number[parents[own]], number[wanted]])[order]
    second = 1 + np.concatenate([graph.written[own], values])[order]
    offsets = starts(np.bincount(num_slots - 1 - slots)).tolist()
    made = CellGraph(torch.from_numpy(np.stack([first, second], 1)), offsets)
    return plan_to_device((made, torch.from_numpy(predictions)), device)


def _prefixes(graph: MemoryGraph, layout: PackedLayout, choices: IntArray, num_slots: int) -> tuple[IntArray, IntArray]:
    """For every position, the position whose prefix state its own continues, and the one that its prediction continues.

    NONE is the zero vector: (P,) each.
    """
    parents, wanted = np.full((2, len(layout.times)), NONE)
    current = np.full((len(layout.sentences), num_slots + 1), NONE)
    for t in range(1, len(layout.num_alive)):
        here = layout.at_time(t)
        decisions, rows = graph.decisions[here], np.arange(here.stop - here.start)
        parents[here] = current[rows, decisions + 1]
        current[rows, decisions] = here.start + rows
        wanted[here] = current[rows, choices[here] + 1]
    return parents, wanted


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
