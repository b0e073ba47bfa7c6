"""The sequential part: decisions step by step, those of the network and those that an oracle calls the best.

Only what the next decision needs is computed, and nothing is differentiated: the gradient is computed afterwards, by
levels, for the decisions made here. An oracle reads a batch row by row of one time step: ``labels`` is asked before,
``observe`` told after the decisions of a step. Rows that have ended are left out from the end, as in ``PackedLayout``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from treelm.models.layers.binary_structure import static_labels
from treelm.models.layers.devices import to_device
from treelm.models.som.cells import AttachmentScorer, CellWeights, slot_log_probs
from treelm.models.som.config import OracleKind
from treelm.models.som.graph import GraphBuilder, IntArray, MemoryGraph, PackedLayout
from treelm.models.som.sweep import CellKernel, CellTape

EMPTY = np.iinfo(np.int64).max


class Oracle(ABC):
    """Labels under the decisions that were observed so far; ``siblings`` (B, T + 1) are first siblings by position.

    The column after a sentence's last position belongs to ``</s>`` and holds 0, so its label is always N - 1.
    """

    def __init__(self, siblings: IntArray, num_slots: int) -> None:
        """Start before position 0, whose decision is N by definition and is observed here."""
        self._siblings = siblings
        self._num_slots = num_slots
        self._num_observed = 0
        self.observe(np.full(len(siblings), num_slots))

    def observe(self, decisions: IntArray) -> None:
        """Take in the decisions of the next step, of the first rows (n,)."""
        self._observe(decisions)
        self._num_observed += 1

    def labels(self, num_rows: int) -> IntArray:
        """The labels of the next step for the first rows: (n,)."""
        return self._labels(self._siblings[:num_rows, self._num_observed])

    @abstractmethod
    def _observe(self, decisions: IntArray) -> None: ...

    @abstractmethod
    def _labels(self, siblings: IntArray) -> IntArray: ...


class DynamicOracle(Oracle):
    """The corrected dynamic oracle: the lowest occupied slot whose candidate holds the first sibling.

    It keeps the first position that each slot's candidate covers, ``start[s]``, and label_t = sum_s [start[s] > fs(t)].
    The labels depend on decisions, not on earlier labels, so they are right off the gold path too.
    """

    def __init__(self, siblings: IntArray, num_slots: int) -> None:
        """See ``Oracle``."""
        self.start = np.full((len(siblings), num_slots), EMPTY)  # (B, N), by slot; EMPTY where a slot is empty
        super().__init__(siblings, num_slots)

    def _observe(self, decisions: IntArray) -> None:
        rows = np.arange(len(decisions))
        start = self.start[: len(decisions)]
        start[np.arange(self._num_slots) < decisions[:, None]] = EMPTY
        is_written = decisions > 0
        start[rows[is_written], decisions[is_written] - 1] = self._num_observed

    def _labels(self, siblings: IntArray) -> IntArray:
        labels: IntArray = (self.start[: len(siblings)] > siblings[:, None]).sum(1)
        return labels


class PrintedOracle(Oracle):
    """Algorithm 1 as printed: max(xi_fs(t) - 1, theta_fs(t)+1, ..., theta_t-1), with an earlier *label* xi.

    Off the gold path it is wrong, sometimes even impossible; it is clipped to the decisions that are possible.
    """

    def __init__(self, siblings: IntArray, num_slots: int) -> None:
        """See ``Oracle``."""
        self._decisions = np.zeros_like(siblings)
        self._issued = np.full_like(siblings, num_slots)  # xi
        super().__init__(siblings, num_slots)

    def _observe(self, decisions: IntArray) -> None:
        self._decisions[: len(decisions), self._num_observed] = decisions

    def _labels(self, siblings: IntArray) -> IntArray:
        now, n = self._num_observed, len(siblings)
        since = np.arange(now) > siblings[:, None]
        highest = np.where(since, self._decisions[:n, :now], -1).max(1)
        labels = np.maximum(self._issued[np.arange(n), siblings] - 1, highest)
        lowest = np.maximum(self._decisions[:n, now - 1] - 1, 0)
        self._issued[:n, now] = np.clip(labels, lowest, self._num_slots - 1)
        return self._issued[:n, now].copy()


class StaticOracle(Oracle):
    """Static labels: right only if every decision so far was the label."""

    def __init__(self, siblings: IntArray, num_slots: int) -> None:
        """See ``Oracle``."""
        self.decisions = static_labels(siblings, num_slots)[0]  # (B, T + 1)
        super().__init__(siblings, num_slots)

    def _observe(self, decisions: IntArray) -> None:
        pass

    def _labels(self, siblings: IntArray) -> IntArray:
        labels: IntArray = self.decisions[: len(siblings), self._num_observed]
        return labels


ORACLE_CLASSES: dict[OracleKind, type[Oracle]] = {
    "dynamic": DynamicOracle,
    "printed": PrintedOracle,
    "static": StaticOracle,
    "left-branching": DynamicOracle,  # with first siblings of 0, all its labels are N - 1
}

Choose = Callable[[int, Tensor], IntArray]
"""Time step and log probabilities (n, N) -> decisions (n,)."""


def greedy(t: int, log_probs: Tensor) -> IntArray:
    """The most probable slot."""
    chosen: IntArray = log_probs.argmax(1).cpu().numpy()
    return chosen


def sample(t: int, log_probs: Tensor) -> IntArray:
    """A slot drawn from the distribution, with torch's global generator."""
    chosen: IntArray = torch.multinomial(log_probs.exp(), 1)[:, 0].cpu().numpy()
    return chosen


@dataclass(kw_only=True)
class Trace:
    """Decisions of a batch. ``bank`` and ``tape`` are None when they were given and nothing was computed."""

    graph: MemoryGraph
    next_labels: IntArray  # (P,) the oracle's label for the next position, after each position's decision
    masks: tuple[Tensor, Tensor] | None = None  # (pairs, D) dropout of the attachment scorer
    bank: Tensor | None = None  # (P + nodes, D)
    tape: CellTape | None = None


def follow(layout: PackedLayout, decisions: IntArray, oracle: Oracle, num_slots: int) -> Trace:
    """The trace of given decisions (P,)."""
    builder = GraphBuilder(layout, num_slots)
    next_labels = np.empty(layout.num_positions, np.int64)
    next_labels[layout.slice(0)] = oracle.labels(int(layout.num_alive[0]))
    for t in range(1, layout.num_steps):
        here = layout.slice(t)
        for _ in builder.step(t, decisions[here]):
            pass
        oracle.observe(decisions[here])
        next_labels[here] = oracle.labels(here.stop - here.start)
    return Trace(graph=builder.build(), next_labels=next_labels)


class Decider:
    """Decides for one batch."""

    def __init__(
        self,
        layout: PackedLayout,
        oracle: Oracle,
        scorer: AttachmentScorer,
        weights: CellWeights,
        *,
        num_slots: int,
        dropout: float,
    ) -> None:
        """Prepare for the sentences of a layout."""
        self._layout, self._oracle, self._scorer = layout, oracle, scorer
        self._kernel, self._num_slots = CellKernel(weights), num_slots
        self._dropout = dropout
        self._builder = GraphBuilder(layout, num_slots)
        self._next_labels = np.empty(layout.num_positions, np.int64)
        self._masks: list[tuple[Tensor, Tensor]] = []
        self._num_used = layout.num_positions  # of the bank

    def run(self, inputs: Tensor, queries: Tensor, for_scoring: Callable[[Tensor], Tensor], choose: Choose) -> Trace:
        """Read inputs (P, D) and their queries (P, D). ``for_scoring`` prepares candidates for the scorer."""
        layout = self._layout
        self._bank = torch.cat([inputs, torch.empty_like(inputs).repeat(2, 1)])
        capacity = 3 * len(inputs)
        self._tape = CellTape(inputs, self._kernel.segments, capacity=capacity, dropout=self._dropout)
        if not self._dropout:  # a position writes one slot, so there is a product for each at most
            self._place = np.full(capacity, -1)
            self._projected = inputs.new_empty(len(inputs), self._tape.hidden.shape[1])
            self._num_projected = 0
        self._next_labels[layout.slice(0)] = self._oracle.labels(int(layout.num_alive[0]))
        for t in range(1, layout.num_steps):
            here = layout.slice(t)
            log_probs = self._log_probs(t, queries[here], for_scoring)
            decisions = choose(t, log_probs)
            for first, second in self._builder.step(t, decisions):
                self._evaluate(first, second)
            self._oracle.observe(decisions)
            self._next_labels[here] = self._oracle.labels(len(decisions))
        masks = [torch.cat(both) for both in zip(*self._masks, strict=True)]
        return Trace(
            graph=self._builder.build(),
            next_labels=self._next_labels,
            masks=(masks[0], masks[1]) if masks else None,
            bank=self._bank[: self._num_used],
            tape=self._tape,
        )

    def _log_probs(self, t: int, queries: Tensor, for_scoring: Callable[[Tensor], Tensor]) -> Tensor:
        before = int(self._layout.offsets[t - 1])
        vectors = self._builder.candidates[before : before + len(queries)]
        rows, slots = np.nonzero(vectors >= 0)
        device = queries.device
        row, slot, vector = (to_device(a, device) for a in (rows, slots, vectors[rows, slots]))
        candidates = for_scoring(self._bank.index_select(0, vector))
        masks = None
        if self._dropout:
            kept = 1 - self._dropout
            masks = tuple(torch.empty_like(candidates).bernoulli_(kept).div_(kept) for _ in range(2))
            self._masks.append((masks[0], masks[1]))
        # Of weights that have gone wrong any decision will do: the loss, or the score, says what is the matter.
        scores = self._scorer(queries.index_select(0, row), candidates, masks).nan_to_num(0.0)
        return slot_log_probs(scores, row, slot, len(queries), self._num_slots)

    def _evaluate(self, first: IntArray, second: IntArray) -> None:
        end = self._num_used + len(first)
        if end > len(self._bank):
            if not self._dropout:
                self._place = np.append(self._place, np.full(len(self._bank), -1))
            self._bank = torch.cat([self._bank, torch.empty_like(self._bank)])
        rows = slice(self._num_used - self._layout.num_positions, end - self._layout.num_positions)
        self._tape.reserve(rows.stop)
        self._tape.draw_masks(rows)
        below, stored = (
            self._bank.index_select(0, to_device(numbers, self._bank.device)) for numbers in (first, second)
        )
        out = self._bank[self._num_used : end]
        if self._dropout:
            self._kernel.evaluate_into(out, below, stored, self._tape, rows)
        else:
            projected = self._projected_memory(second, stored)
            self._kernel.halves[0].forward.multiply_into(self._tape.hidden[rows], below, bias=projected)
            self._kernel.finish_into(out, below, stored, self._tape, rows)
        self._num_used = end

    def _projected_memory(self, numbers: IntArray, stored: Tensor) -> Tensor:
        """W_1's product with vectors of the memory, plus b_1: (n, 4D). Each is computed when it is read first.

        It stays valid as long as the vector stays in its slot: without dropout there are no masks that differ.
        """
        places = self._place[numbers]
        is_new = places < 0
        if is_new.all():
            first, self._num_projected = self._num_projected, self._num_projected + len(numbers)
            new = self._projected[first : self._num_projected]
            self._place[numbers] = np.arange(first, self._num_projected)
            self._kernel.halves[1].forward.multiply_into(new, stored, bias=self._kernel.hidden_bias)
            return new
        assert not is_new.any()  # a slot is new only as the lowest of its step, and the lowest ones come together
        return self._projected.index_select(0, to_device(places, stored.device))
