"""What bracketing scores are made of: one row a sentence, totals, and the result with its protocol."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from treelm.evaluation.parameters import Parameters

Status = Literal["valid", "error", "skipped"]


def f1(precision: float, recall: float) -> float:
    """Harmonic mean of precision and recall; 0 when both are 0 (where EVALB prints nan)."""
    return 2 * precision * recall / (precision + recall) if precision + recall > 0 else 0.0


def percentage(part: float, whole: float) -> float:
    """``part`` in hundredths of ``whole``; 0 of nothing is 0."""
    return 100.0 * part / whole if whole else 0.0


@dataclass(frozen=True, kw_only=True)
class SentenceRow:
    """One sentence. Counts of an error sentence and of a skipped one are 0, except ``length``."""

    number: int  # from 1
    where: str
    status: Status
    problem: str | None = None
    length: int  # words of the gold tree, without those that do not count for length
    matched: int = 0
    gold_brackets: int = 0
    predicted_brackets: int = 0
    crossing: int = 0  # predicted brackets that cross a gold bracket
    words: int = 0  # after deletion
    correct_tags: int = 0

    @property
    def recall(self) -> float:
        """Matched of gold brackets, in percent."""
        return percentage(self.matched, self.gold_brackets)

    @property
    def precision(self) -> float:
        """Matched of predicted brackets, in percent."""
        return percentage(self.matched, self.predicted_brackets)

    @property
    def f1(self) -> float:
        """F1 of this sentence, in percent."""
        return f1(self.precision, self.recall)

    @property
    def is_complete(self) -> bool:
        """Whether every bracket is matched on both sides (also when there is none)."""
        return self.matched == self.gold_brackets == self.predicted_brackets


@dataclass(frozen=True, kw_only=True)
class Total:
    """Sums over sentences; every figure is over the valid ones, in percent unless it is a count."""

    rows: tuple[SentenceRow, ...]

    @cached_property
    def valid(self) -> list[SentenceRow]:
        """The sentences that are scored."""
        return [row for row in self.rows if row.status == "valid"]

    def count(self, status: Status) -> int:
        """Number of sentences with this status."""
        return sum(row.status == status for row in self.rows)

    @property
    def matched(self) -> int:
        """Matched brackets."""
        return sum(row.matched for row in self.valid)

    @property
    def gold_brackets(self) -> int:
        """Brackets of the gold trees, after deletion."""
        return sum(row.gold_brackets for row in self.valid)

    @property
    def predicted_brackets(self) -> int:
        """Brackets of the predicted trees, after deletion."""
        return sum(row.predicted_brackets for row in self.valid)

    @property
    def crossing(self) -> int:
        """Predicted brackets that cross a gold bracket."""
        return sum(row.crossing for row in self.valid)

    @property
    def words(self) -> int:
        """Words after deletion."""
        return sum(row.words for row in self.valid)

    @property
    def correct_tags(self) -> int:
        """Words with the tag that gold has."""
        return sum(row.correct_tags for row in self.valid)

    @property
    def recall(self) -> float:
        """Corpus-level recall."""
        return percentage(self.matched, self.gold_brackets)

    @property
    def precision(self) -> float:
        """Corpus-level precision."""
        return percentage(self.matched, self.predicted_brackets)

    @property
    def f1(self) -> float:
        """Corpus-level F1: what EVALB prints and papers report."""
        return f1(self.precision, self.recall)

    @property
    def sentence_f1(self) -> float:
        """Mean of the sentences' F1 (not an EVALB figure)."""
        return percentage(sum(row.f1 for row in self.valid), 100 * len(self.valid))

    @property
    def complete_match(self) -> float:
        """Sentences whose brackets all match."""
        return self._share(row.is_complete for row in self.valid)

    @property
    def average_crossing(self) -> float:
        """Crossing brackets a sentence (a count, not in percent)."""
        return self.crossing / len(self.valid) if self.valid else 0.0

    @property
    def no_crossing(self) -> float:
        """Sentences without a crossing bracket."""
        return self._share(row.crossing == 0 for row in self.valid)

    @property
    def two_or_less_crossing(self) -> float:
        """Sentences with at most two crossing brackets."""
        return self._share(row.crossing <= 2 for row in self.valid)

    @property
    def tagging_accuracy(self) -> float:
        """Correct tags of words after deletion."""
        return percentage(self.correct_tags, self.words)

    def _share(self, hits: Iterable[bool]) -> float:
        return percentage(sum(hits), len(self.valid))


@dataclass(frozen=True, kw_only=True)
class BracketingResult:
    """All rows, their total, and what a reader must know to interpret them."""

    parameters: Parameters
    total: Total
    total_up_to_cutoff: Total
    predicted_tags: Literal["own", "gold"]
    notes: tuple[str, ...] = ()

    @property
    def protocol(self) -> str:
        """The name that goes with every figure."""
        return f"evalb ({self.parameters.name}, {'labelled' if self.parameters.labeled else 'unlabelled'})"
