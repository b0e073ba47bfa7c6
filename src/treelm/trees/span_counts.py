"""Precision, recall and F1 of spans."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from treelm.trees.tree import Tree


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


def inner_f1(gold: Tree, found: Tree) -> float:
    """Unlabelled F1, from 0 to 100, over the set of spans of at least two words and less than the sentence.

    A sentence without such gold spans counts as 100, or as 0 if some are predicted, as in the protocols ``wsj10`` and
    ``wsj40`` of the evaluation.
    """
    own, other = inner_spans(gold), inner_spans(found)
    return SpanCounts(matched=len(own & other), gold=len(own), predicted=len(other)).f1


def mean_inner_f1(gold: Sequence[Tree], found: Sequence[Tree]) -> float:
    """Mean of the sentences' ``inner_f1``."""
    scores = [inner_f1(one, other) for one, other in zip(gold, found, strict=True)]
    return sum(scores) / len(scores)


def inner_spans(tree: Tree) -> set[tuple[int, int]]:
    """Spans of at least two words and less than the sentence."""
    spans = tree.spans()
    return {(start, end) for _, start, end in spans if 1 < end - start < spans[0].end}
