"""Oracles: the decisions that are best after those that were made (Shen et al. 2021, Section 4.2, Algorithm 1).

An oracle reads one time step of a batch at a time: ``labels`` is called before the decisions of a step, then
``observe`` with them. Rows that have ended are left out from the end, as in ``PackedLayout``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from treelm.models.layers.binary_structure import static_labels
from treelm.models.som.config import OracleKind
from treelm.models.som.plan import IntArray, PackedLayout

EMPTY = np.iinfo(np.int64).max


class Oracle(ABC):
    """Labels under the decisions that were observed so far; ``siblings`` (B, T + 1) are first siblings by position.

    The column after a sentence's last position belongs to ``</s>`` and holds 0, so its label is always N - 1.
    """

    def __init__(self, siblings: IntArray, num_slots: int) -> None:
        """Start before position 0, whose decision is N by definition and is observed here."""
        self.siblings, self.num_slots, self.num_observed = siblings, num_slots, 0
        self.start = np.full((len(siblings), num_slots), EMPTY)
        """(B, N) the first position that the candidate of each slot covers; EMPTY where a slot is empty."""
        self.observe(np.full(len(siblings), num_slots))

    def observe(self, decisions: IntArray) -> None:
        """Take in the decisions of the next step, of the first rows (n,)."""
        start = self.start[: len(decisions)]
        start[np.arange(self.num_slots) < decisions[:, None]] = EMPTY
        is_written = np.flatnonzero(decisions)
        start[is_written, decisions[is_written] - 1] = self.num_observed
        self.num_observed += 1

    def follow(self, layout: PackedLayout, decisions: IntArray) -> IntArray:
        """The label of the position after each (P,), packed, under these decisions (P,)."""
        next_labels = np.empty_like(decisions)
        for t, num_rows in enumerate(layout.num_alive.tolist()):
            if t:
                self.observe(decisions[layout.at_time(t)])
            next_labels[layout.at_time(t)] = self.labels(num_rows)
        return next_labels

    @abstractmethod
    def labels(self, num_rows: int) -> IntArray:
        """The labels of the next step for the first rows: (n,)."""


class DynamicOracle(Oracle):
    """The corrected dynamic oracle: the lowest occupied slot whose candidate holds the first sibling.

    label_t = sum_s [start[s] > fs(t)]. The labels depend on decisions, not on earlier labels, so they are right off the
    gold path too.
    """

    def labels(self, num_rows: int) -> IntArray:
        """See ``Oracle``."""
        labels: IntArray = (self.start[:num_rows] > self.siblings[:num_rows, self.num_observed, None]).sum(1)
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

    def observe(self, decisions: IntArray) -> None:
        """See ``Oracle``."""
        self._decisions[: len(decisions), self.num_observed] = decisions
        super().observe(decisions)

    def labels(self, num_rows: int) -> IntArray:
        """See ``Oracle``."""
        now, siblings = self.num_observed, self.siblings[:num_rows, self.num_observed]
        decisions = self._decisions[:num_rows, :now]
        highest = np.where(np.arange(now) > siblings[:, None], decisions, -1).max(1)
        labels = np.maximum(self._issued[np.arange(num_rows), siblings] - 1, highest)
        lowest = np.maximum(decisions[:, -1] - 1, 0)
        self._issued[:num_rows, now] = np.clip(labels, lowest, self.num_slots - 1)
        return self._issued[:num_rows, now].copy()


class StaticOracle(Oracle):
    """Static labels: right only if every decision so far was the label."""

    def __init__(self, siblings: IntArray, num_slots: int) -> None:
        """See ``Oracle``."""
        self._gold = static_labels(siblings, num_slots)[0]  # (B, T + 1)
        super().__init__(siblings, num_slots)

    def labels(self, num_rows: int) -> IntArray:
        """See ``Oracle``."""
        return self._gold[:num_rows, self.num_observed]


ORACLES: dict[OracleKind, type[Oracle]] = {
    "dynamic": DynamicOracle,
    "printed": PrintedOracle,
    "static": StaticOracle,
    "left-branching": DynamicOracle,  # with first siblings of 0, all its labels are N - 1
}
