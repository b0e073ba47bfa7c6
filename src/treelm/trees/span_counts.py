"""Precision, recall and F1 of spans."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


def harmonic_mean(precision: float, recall: float) -> float:
    """F1 of a precision and a recall in the same unit; 0 when both are 0."""
    return 2 * precision * recall / (precision + recall) if precision + recall > 0 else 0.0


@dataclass(frozen=True, kw_only=True)
class SpanCounts:
    """Matched, gold and predicted spans of one sentence, or of many added up."""

    matched: int
    gold: int
    predicted: int

    @property
    def precision(self) -> float:
        """Matched of predicted spans, 0..100; without any on either side, 100."""
        return 100.0 * self.matched / self.predicted if self.predicted else (0.0 if self.gold else 100.0)

    @property
    def recall(self) -> float:
        """Matched of gold spans, 0..100; without gold spans nothing is missed: 100."""
        return 100.0 * self.matched / self.gold if self.gold else 100.0

    @property
    def f1(self) -> float:
        """Harmonic mean of precision and recall, 0..100."""
        return harmonic_mean(self.precision, self.recall)


def add_up(counts: Iterable[SpanCounts]) -> SpanCounts:
    """All spans together."""
    kept = list(counts)
    return SpanCounts(
        matched=sum(one.matched for one in kept),
        gold=sum(one.gold for one in kept),
        predicted=sum(one.predicted for one in kept),
    )
