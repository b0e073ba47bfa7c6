"""Metrics of one model, each with its protocol's name: as a table, as a row, as JSON, and as EVALB prints them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from treelm.evaluation.evalb import BracketingResult, SentenceRow, Status, Total
from treelm.evaluation.span_protocols import SpanResult
from treelm.evaluation.tables import Table
from treelm.evaluation.trivial_baselines import Baseline
from treelm.io.atomic import write_atomically
from treelm.models.perplexity import UNCONVERGED, Coverage, Perplexity

if TYPE_CHECKING:
    from rich.console import RenderableType

    from treelm.corpora.sentence import Sentence
    from treelm.models.base import Analysis

MOST_COLUMNS = 3  # splits or files that have a column each; more have a row each
_RULE = "=" * 76
_STATUS_NUMBER: dict[Status, int] = {"valid": 0, "error": 1, "skipped": 2}
GIVEN_TREES = (
    "words are predicted with the trees of the file, which have seen what follows: "
    "such a perplexity says what structure can do, and does not compare with others"
)
"""The note on every metric of a system that needs trees."""


@dataclass(frozen=True, kw_only=True)
class EvaluationResult:
    """The metrics of one model on one split. Empty parts were not measured.

    ``num_skipped`` sentences were left out before scoring. ``unknown_labels`` counts gold constituents whose label the
    model lacks. ``own`` are metrics of this system alone; ``..._bound`` is an upper bound.
    """

    system: str
    split: str
    num_sentences: int
    num_words: int
    num_skipped: int = 0
    unknown_labels: Mapping[str, int] = field(default_factory=dict)
    perplexities: tuple[Perplexity, ...] = ()
    coverage: Coverage | None = None
    bracketing: tuple[BracketingResult, ...] = ()
    spans: tuple[SpanResult, ...] = ()
    baselines: tuple[Baseline, ...] = ()
    own: Mapping[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()  # such as where the corpus's trees come from
    search: str = ""  # such as "beam 20/10/1"; empty for systems that score without a search
    sentences: tuple[Sentence, ...] = ()
    analyses: tuple[Analysis, ...] = ()  # of the sentences, from which the metrics were computed; empty for a stream

    @property
    def is_upper_bound(self) -> bool:
        """Whether some perplexity is an upper bound."""
        return any(one.is_upper_bound for one in self.perplexities)

    def with_stream(self, stream: EvaluationResult) -> EvaluationResult:
        """These metrics, with the perplexities and the notes of the same text read in a row."""
        notes = tuple(dict.fromkeys((*self.notes, *stream.notes)))
        return replace(self, perplexities=(*self.perplexities, *stream.perplexities), notes=notes)

    def to_json(self) -> dict[str, Any]:
        """All metrics, unrounded, as JSON values; F1 in 0..100."""
        return {
            **_values(self, ("system", "split", "num_sentences", "num_words", "num_skipped")),
            "unknown_labels": dict(self.unknown_labels),
            "perplexities": [one.to_json() for one in self.perplexities],
            "bracketing": [evalb_json(one, sentences=False) for one in self.bracketing],
            "unlabeled_f1": [
                {
                    "protocol": one.name,
                    "description": one.protocol.description,
                    **_values(one, ("corpus_f1", "sentence_f1")),
                    "num_sentences": len(one.sentences),
                    "num_left_out": one.num_left_out,
                    "num_errors": len(one.errors),
                }
                for one in self.spans
            ],
            "baselines": [asdict(one) for one in self.baselines],
            "own": dict(self.own),
            "notes": list(self.all_notes()),
            **({} if self.coverage is None else asdict(self.coverage)),
        }

    def all_notes(self) -> Iterator[str]:
        """All notes, then the errors of single sentences."""
        yield from self.main_notes()
        for spans in self.spans:
            yield from (f"{spans.name}: {error}" for error in spans.errors)

    def main_notes(self) -> Iterator[str]:
        """All notes but those on single sentences."""
        yield from self.notes
        if self.search:
            yield f"search: {self.search}"
        for bracketing in self.bracketing:
            yield from bracketing.notes

    def rows(self) -> Iterator[tuple[str, str]]:
        """Yield the name and the rounded value of every row of the table."""
        for perplexity in self.perplexities:
            yield perplexity.name, perplexity.text
            if perplexity.unit != "word":
                bound = "≤ " if perplexity.is_upper_bound else ""
                yield f"  bits per {perplexity.unit}", f"{bound}{perplexity.bits_per_unit:.4f}"
        for name, share in () if self.coverage is None else self.coverage.shares.items():
            yield f"  {name}", f"{share:.1%}"
        if self.coverage is not None and self.coverage.num_unconverged is None and self.is_upper_bound:
            yield f"  {UNCONVERGED}", "not known"
        for result in self.bracketing:
            yield f"F1, {result.protocol}", f"{result.total.f1:.2f}"
            yield f"  sentence level, {result.protocol}", f"{result.total.sentence_f1:.2f}"
        for spans in self.spans:
            yield f"unlabelled F1, {spans.name}, corpus / sentence", f"{spans.corpus_f1:.1f} / {spans.sentence_f1:.1f}"
            yield f"  sentences scored, {spans.name}", f"{len(spans.sentences):,}"
            for baseline in self.baselines:
                if baseline.protocol == spans.name:
                    yield f"  {baseline.name}, {spans.name}", f"{baseline.corpus_f1:.1f} / {baseline.sentence_f1:.1f}"
        for name, value in self.own.items():
            yield name, f"{'≤ ' if name.endswith('_bound') else ''}{value:.3f}"
        yield "sentences / words", f"{self.num_sentences:,} / {self.num_words:,}"
        yield "sentences skipped when read", f"{self.num_skipped:,}"
        for result in self.bracketing:
            counts = f"{result.total.count('error'):,} / {result.total.count('skipped'):,}"
            yield f"error / skipped sentences, {result.protocol}", counts
        if self.unknown_labels:
            yield "gold constituents with unknown labels", f"{sum(self.unknown_labels.values()):,}"


def as_table(results: Sequence[EvaluationResult], *, title: str = "Evaluation") -> RenderableType:
    """All metrics and, below, the notes, each once: a column for each split or file, or a row if they are many."""
    from rich.console import Group
    from rich.text import Text

    found = [dict(result.rows()) for result in results]
    metrics = list(dict.fromkeys(name for one in found for name in one))
    columns = [["metric", *metrics]]
    columns += [
        [Path(result.split).name, *(one.get(name, "") for name in metrics)]
        for result, one in zip(results, found, strict=True)
    ]
    lines = columns if len(results) > MOST_COLUMNS else zip(*columns, strict=True)
    headings, *rows = lines
    notes = dict.fromkeys(note for result in results for note in result.all_notes())
    return Group(Table(headings=headings, rows=rows, title=title), *(Text(f"note: {note}") for note in notes))


def evalb_text(result: BracketingResult, *, sentences: bool = True) -> str:
    """The columns and the summary that EVALB prints, with the protocol's name, problems and notes below."""
    lines = [
        "  Sent.                        Matched  Bracket   Cross        Correct Tag",
        " ID  Len.  Stat. Recal  Prec.  Bracket gold test Bracket Words  Tags Accracy",
        _RULE,
    ]
    lines += [_evalb_row(row) for row in result.total.rows] if sentences else []
    lines += [_RULE, _evalb_total(result.total), "=== Summary ===", "", "-- All --", *_evalb_summary(result.total), ""]
    lines += [f"-- len<={result.parameters.cutoff_length} --", *_evalb_summary(result.total_up_to_cutoff), ""]
    lines += [f"protocol: {result.protocol}", *(f"note: {note}" for note in result.notes)]
    lines += [f"{row.status}: sentence {row.number}: {row.problem}" for row in result.total.rows if row.problem]
    return "\n".join(lines) + "\n"


def _evalb_row(row: SentenceRow) -> str:
    return (
        f"{row.number:4d}  {row.length:3d}    {_STATUS_NUMBER[row.status]}  {row.recall:6.2f} {row.precision:6.2f}   "
        f"{row.matched:3d}    {row.gold_brackets:3d}  {row.predicted_brackets:3d}    {row.crossing:3d}   "
        f"{row.words:4d}  {row.correct_tags:4d}   {row.tagging_accuracy:6.2f}"
    )


def _evalb_total(total: Total) -> str:
    return (
        f"                {total.recall:6.2f} {total.precision:6.2f} {total.matched:6d} {total.gold_brackets:5d} "
        f"{total.predicted_brackets:5d}  {total.crossing:5d}  {total.words:5d} {total.correct_tags:5d}   "
        f"{total.tagging_accuracy:6.2f}"
    )


_STATUSES: dict[str, Status] = {"Error": "error", "Skip ": "skipped", "Valid": "valid"}
_METRICS = {
    "Bracketing Recall": "recall",
    "Bracketing Precision": "precision",
    "Bracketing FMeasure": "f1",
    "Complete match": "complete_match",
    "Average crossing": "average_crossing",
    "No crossing": "no_crossing",
    "2 or less crossing": "two_or_less_crossing",
    "Tagging accuracy": "tagging_accuracy",
}


def _evalb_summary(total: Total) -> Iterator[str]:
    yield f"{'Number of sentence':25s} = {len(total.rows):6d}"
    yield from (f"{f'Number of {name} sentence':25s} = {total.count(of):6d}" for name, of in _STATUSES.items())
    yield from (f"{name:25s} = {getattr(total, field):6.2f}" for name, field in _METRICS.items())


def evalb_json(result: BracketingResult, *, sentences: bool = True) -> dict[str, Any]:
    """The metrics of ``evalb_text``, unrounded, as JSON values; percentages are in 0..100."""
    cutoff = {"cutoff_length": result.parameters.cutoff_length, **_total_json(result.total_up_to_cutoff)}
    problems = [row for row in result.total.rows if row.problem]
    everything: dict[str, Any] = {
        "protocol": result.protocol,
        "parameters": result.parameters.name,
        "labeled": result.parameters.labeled,
        "predicted_tags": result.predicted_tags,
        "all": _total_json(result.total),
        "up_to_cutoff": cutoff,
        "notes": list(result.notes),
        "problems": [_values(row, ("number", "where", "status", "problem")) for row in problems],
    }
    return everything | ({"sentences": [_values(row, _OF_ROWS) for row in result.total.rows]} if sentences else {})


_F1 = ("matched", "gold_brackets", "predicted_brackets", "recall", "precision", "f1")
_CROSSING = ("average_crossing", "no_crossing", "two_or_less_crossing")
_OF_TOTALS = (*_F1, "sentence_f1", "complete_match", *_CROSSING, "tagging_accuracy")
_OF_ROWS = ("number", "status", "length", *_F1, "crossing", "words", "correct_tags")


def _values(one: object, names: Iterable[str]) -> dict[str, Any]:
    return {name: getattr(one, name) for name in names}


def _total_json(total: Total) -> dict[str, Any]:
    counts: dict[str, Status] = {"num_errors": "error", "num_skipped": "skipped", "num_valid": "valid"}
    return {
        "num_sentences": len(total.rows),
        **{name: total.count(of) for name, of in counts.items()},
        **_values(total, _OF_TOTALS),
    }


Value = str | int | float


def summary_row(result: EvaluationResult) -> dict[str, Value]:
    """The main metrics of a result by column: F1 in 0..100, accuracies and shares in 0..1.

    What was not measured has no column. A perplexity that is not of single sentences names its context
    (``..., in a stream of 10 rows``). ``is_upper_bound`` is 1 if any of the perplexities is an upper bound, else 0.
    """
    row: dict[str, Value] = {
        "system": result.system,
        "data": result.split,
        "sentences": result.num_sentences,
        "words": result.num_words,
        "skipped": result.num_skipped,
    }
    for one in result.perplexities:
        row[f"perplexity_per_{one.unit}_{one.policy}{f', {one.context}' if one.context else ''}"] = one.value
    for bracketing in result.bracketing:
        row[f"f1, {bracketing.protocol}"] = bracketing.total.f1
    for spans in result.spans:
        row[f"unlabeled_f1_corpus, {spans.name}"] = spans.corpus_f1
        row[f"unlabeled_f1_sentence, {spans.name}"] = spans.sentence_f1
    notes = " | ".join(" ".join(note.split()) for note in dict.fromkeys(result.main_notes()))
    row |= {**result.own, "notes": notes}
    if result.perplexities:
        row["is_upper_bound"] = int(result.is_upper_bound)
    row |= {name.replace(" ", "_"): share for name, share in result.coverage.shares.items()} if result.coverage else {}
    return row | {f"sentences_scored, {spans.name}": len(spans.sentences) for spans in result.spans}


def write_summary(results: Sequence[EvaluationResult], path: Path) -> None:
    """Write one row for each result, unrounded, as TSV; the file is replaced as a whole."""
    import pandas as pd

    table = pd.DataFrame([summary_row(result) for result in results], dtype=object)
    write_atomically(path, table.to_csv(sep="\t", index=False, lineterminator="\n").encode())
