"""Everything that was measured of one model, as one table and as JSON. Every figure carries its protocol's name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from treelm.evaluation.bracketing_report import as_json as bracketing_json
from treelm.evaluation.bracketing_result import BracketingResult
from treelm.evaluation.perplexity import Perplexity
from treelm.evaluation.span_protocols import SpanResult
from treelm.evaluation.trivial_baselines import Baseline

if TYPE_CHECKING:
    from rich.console import RenderableType


GIVEN_TREES = (
    "words are predicted with the trees of the file, which have seen what follows: "
    "such a perplexity says what structure can do, and does not compare with others"
)
"""The note on every figure of a system that needs trees."""


@dataclass(frozen=True, kw_only=True)
class EvaluationResult:
    """The figures of one model on one split. Empty parts were not measured.

    ``num_skipped`` sentences were left out before scoring (``--on-error skip``). ``unknown_labels`` counts gold
    constituents whose label the model does not have: it cannot find them. ``own`` are figures that only this system
    has, by name.
    """

    system: str
    split: str
    num_sentences: int
    num_words: int
    num_skipped: int = 0
    unknown_labels: Mapping[str, int] = field(default_factory=dict)
    perplexities: tuple[Perplexity, ...] = ()
    bracketing: tuple[BracketingResult, ...] = ()
    spans: tuple[SpanResult, ...] = ()
    baselines: tuple[Baseline, ...] = ()
    own: Mapping[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()  # such as where the corpus's trees come from

    def with_stream(self, stream: EvaluationResult) -> EvaluationResult:
        """These figures, with the perplexities and the notes of the same text read in a row."""
        notes = tuple(dict.fromkeys((*self.notes, *stream.notes)))
        return replace(self, perplexities=(*self.perplexities, *stream.perplexities), notes=notes)

    def to_json(self) -> dict[str, Any]:
        """All figures, unrounded, as JSON values; F1 in 0..100."""
        return {
            "system": self.system,
            "split": self.split,
            "num_sentences": self.num_sentences,
            "num_words": self.num_words,
            "num_skipped": self.num_skipped,
            "unknown_labels": dict(self.unknown_labels),
            "perplexities": [one.to_json() for one in self.perplexities],
            "bracketing": [bracketing_json(one, sentences=False) for one in self.bracketing],
            "unlabeled_f1": [_spans_json(one) for one in self.spans],
            "baselines": [one.to_json() for one in self.baselines],
            "own": dict(self.own),
            "notes": list(self.all_notes()),
        }

    def all_notes(self) -> Iterator[str]:
        """The caller's notes, then those of the bracketing results, then errors."""
        yield from self.notes
        for bracketing in self.bracketing:
            yield from bracketing.notes
        for spans in self.spans:
            yield from (f"{spans.name}: {error}" for error in spans.errors)

    def rows(self) -> Iterator[tuple[str, str]]:
        """Name and value of every row of the table, values rounded for reading."""
        for perplexity in self.perplexities:
            bound = "≤ " if perplexity.is_upper_bound else ""
            yield perplexity.name, f"{bound}{perplexity.value:.2f}"
            if perplexity.unit != "word":
                yield f"  bits per {perplexity.unit}", f"{bound}{perplexity.bits_per_unit:.4f}"
        for result in self.bracketing:
            yield f"F1, {result.protocol}", f"{result.total.f1:.2f}"
            yield f"  sentence level, {result.protocol}", f"{result.total.sentence_f1:.2f}"
        for spans in self.spans:
            yield f"unlabelled F1, {spans.name}, corpus / sentence", _pair(spans.corpus_f1, spans.sentence_f1)
            for baseline in self.baselines:
                if baseline.protocol == spans.name:
                    yield f"  {baseline.name}, {spans.name}", _pair(baseline.corpus_f1, baseline.sentence_f1)
        for name, value in self.own.items():
            yield name, f"{value:.3f}"
        yield "sentences / words", f"{self.num_sentences:,} / {self.num_words:,}"
        yield from self._count_rows()

    def _count_rows(self) -> Iterator[tuple[str, str]]:
        yield "sentences skipped when read", f"{self.num_skipped:,}"
        for result in self.bracketing:
            counts = f"{result.total.count('error'):,} / {result.total.count('skipped'):,}"
            yield f"error / skipped sentences, {result.protocol}", counts
        for spans in self.spans:
            yield f"sentences scored, {spans.name}", f"{len(spans.sentences):,}"
        if self.unknown_labels:
            yield "gold constituents with unknown labels", f"{sum(self.unknown_labels.values()):,}"


def _pair(corpus: float, sentence: float) -> str:
    return f"{corpus:.1f} / {sentence:.1f}"


def _spans_json(spans: SpanResult) -> dict[str, Any]:
    return {
        "protocol": spans.name,
        "description": spans.protocol.description,
        "corpus_f1": spans.corpus_f1,
        "sentence_f1": spans.sentence_f1,
        "num_sentences": len(spans.sentences),
        "num_left_out": spans.num_left_out,
        "num_errors": len(spans.errors),
    }


def as_table(results: Sequence[EvaluationResult], *, title: str = "Evaluation") -> RenderableType:
    """One rich table with a column for each result (split), and the notes below it, each once."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title)
    table.add_column("figure")
    for result in results:
        table.add_column(result.split, justify="right")
    columns = [dict(result.rows()) for result in results]
    for name in dict.fromkeys(name for column in columns for name in column):
        table.add_row(Text(name), *(column.get(name, "") for column in columns))
    notes = dict.fromkeys(note for result in results for note in result.all_notes())
    return Group(table, *(Text(f"note: {note}") for note in notes))
