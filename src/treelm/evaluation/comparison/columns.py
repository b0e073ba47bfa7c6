"""The columns of a comparison: those that some row has."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from treelm.evaluation.comparison.figures import Comparison, F1Figure, RunFigures, SyntaxGymFigures
from treelm.evaluation.syntaxgym.references import circuits

Value = str | int | float | bool
Rows = Sequence[RunFigures]
Group = Literal["names", "figures", "sizes and speed", "syntax tests", "data only"]
"""Where a column stands in the terminal, which is narrow; ``data only`` is not for eyes."""
MISSING = "-"
_SHORT = {
    "Long-Distance Dependencies": "Long-Distance",
    "Garden-Path Effects": "Garden Path",
    "Gross Syntactic State": "Gross State",
    "Center Embedding": "Center Emb.",
}


@dataclass(frozen=True, kw_only=True)
class Column:
    """One figure of every row."""

    name: str  # in CSV
    heading: str = ""  # in tables for eyes
    value: Callable[[RunFigures], Value | None]
    text: Callable[[Value], str] = str
    group: Group = "figures"
    is_wide: bool = False  # left out of the terminal, which is narrow

    def cell(self, row: RunFigures) -> str:
        """The figure for eyes, rounded; ``-`` where there is none."""
        value = self.value(row)
        return MISSING if value is None else self.text(value)


def columns_of(comparison: Comparison) -> list[Column]:
    """All columns that some row has a figure for, in the order of the table."""
    rows = comparison.runs
    makers = (_names, _sizes, _perplexities, _labeled_f1, _unlabeled_f1, _speeds, _syntaxgym, _suites, _pairs)
    everything = (column for maker in makers for column in maker(rows))
    return [column for column in everything if any(column.value(row) is not None for row in rows)]


def _names(rows: Rows) -> Iterator[Column]:
    yield Column(name="run", heading="run", value=lambda row: row.name, group="names")
    shown: Group = "sizes and speed" if any(row.system != row.name for row in rows) else "data only"
    yield Column(name="system", heading="system", value=lambda row: row.system, group=shown)


def _sizes(rows: Rows) -> Iterator[Column]:
    yield Column(
        name="parameters",
        heading="parameters",
        value=lambda row: row.num_parameters or None,
        text=lambda value: f"{float(value) / 1e6:.2f}M",
        group="sizes and speed",
    )
    yield Column(
        name="training_seconds",
        heading="training",
        value=lambda row: row.training_seconds,
        text=_minutes,
        group="sizes and speed",
    )


def _speeds(rows: Rows) -> Iterator[Column]:
    yield Column(
        name="training_words_per_second",
        heading="words/s training",
        value=lambda row: row.training_words_per_second,
        text=_whole,
        group="sizes and speed",
    )
    yield Column(
        name="scoring_words_per_second",
        heading="words/s scoring",
        value=lambda row: row.scoring_words_per_second,
        text=_whole,
        group="sizes and speed",
    )


def _perplexities(rows: Rows) -> Iterator[Column]:
    """That which compares, with its bound, and then others by name: of streams, per character."""
    yield _Bounded(name="perplexity", heading="perplexity", value=_main_perplexity, text=_tenths)
    yield Column(name="is_upper_bound", value=_is_upper_bound, group="data only")
    main = {row.perplexity for row in rows}
    for name in dict.fromkeys(one.name for row in rows for one in row.perplexities if one not in main):
        heading = name.replace(" per word, with end of sentence", "").replace(", in a stream", " in a stream")
        yield _Bounded(
            name=name,
            heading=heading,
            value=lambda row, name=name: _perplexity_by_name(row, name),  # type: ignore[misc]
            text=_tenths,
        )


class _Bounded(Column):
    """A perplexity, marked where it is an upper bound."""

    def cell(self, row: RunFigures) -> str:
        """The figure with ``≤`` before it if it is an upper bound."""
        cell = super().cell(row)
        return f"≤ {cell}" if cell != MISSING and _is_upper_bound(row) else cell


def _main_perplexity(row: RunFigures) -> float | None:
    return None if row.perplexity is None else row.perplexity.value


def _is_upper_bound(row: RunFigures) -> bool | None:
    return None if row.perplexity is None else row.perplexity.is_upper_bound


def _perplexity_by_name(row: RunFigures, name: str) -> float | None:
    return next((one.value for one in row.perplexities if one.name == name), None)


def _labeled_f1(rows: Rows) -> Iterator[Column]:
    for protocol in _protocols(row.labeled_f1 for row in rows):
        yield Column(
            name=f"labeled_f1, {protocol}",
            heading="labelled F1",
            value=lambda row, protocol=protocol: _f1(row.labeled_f1, protocol, "corpus_f1"),  # type: ignore[misc]
            text=_tenths,
        )


def _unlabeled_f1(rows: Rows) -> Iterator[Column]:
    """By protocol: at corpus level, of sentences (data only), of the best trivial trees, and the most that there is."""
    for protocol in _protocols(row.unlabeled_f1 for row in rows):
        yield Column(
            name=f"unlabeled_f1, {protocol}",
            heading=f"UF1 {protocol}",
            value=lambda row, protocol=protocol: _f1(row.unlabeled_f1, protocol, "corpus_f1"),  # type: ignore[misc]
            text=_tenths,
        )
        yield Column(
            name=f"unlabeled_f1_sentence, {protocol}",
            value=lambda row, protocol=protocol: _f1(row.unlabeled_f1, protocol, "sentence_f1"),  # type: ignore[misc]
            group="data only",
        )
        yield Column(
            name=f"trivial_f1, {protocol}",
            heading="trivial",
            value=lambda row, protocol=protocol: row.trivial_f1(protocol),  # type: ignore[misc]
            text=_tenths,
        )
        yield Column(
            name=f"binary_upper_bound_f1, {protocol}",
            heading="bound",
            value=lambda row, protocol=protocol: row.upper_bound_f1(protocol),  # type: ignore[misc]
            text=_tenths,
        )
    yield Column(name="gold_trees", heading="gold trees", value=lambda row: row.gold_trees)


def _protocols(figures: Iterable[Sequence[F1Figure]]) -> list[str]:
    return list(dict.fromkeys(one.protocol for row in figures for one in row))


def _f1(figures: Sequence[F1Figure], protocol: str, level: Literal["corpus_f1", "sentence_f1"]) -> float | None:
    return next((getattr(one, level) for one in figures if one.protocol == protocol), None)


def _syntaxgym(rows: Rows) -> Iterator[Column]:
    """The SG score, or the mean over what was scored where some suites were not; and the circuits."""
    scored = [row.syntaxgym for row in rows if row.syntaxgym is not None]
    yield Column(
        name="sg_score",
        heading="SG score",
        value=lambda row: row.syntaxgym.sg_score if row.syntaxgym else None,
        text=_percent,
        group="syntax tests",
    )
    yield from _without_unknown([one for one in scored if one.without_unknown])
    sizes = {len(one.suites) for one in scored if one.sg_score is None}
    yield Column(
        name="mean_over_suites",
        heading=f"mean of {'/'.join(map(str, sorted(sizes)))} suites",
        value=lambda row: row.syntaxgym.mean if row.syntaxgym else None,
        text=_percent,
        group="syntax tests" if sizes else "data only",
    )
    for circuit in circuits():
        yield Column(
            name=f"circuit, {circuit}",
            heading=_SHORT.get(circuit, circuit),
            value=lambda row, circuit=circuit: row.syntaxgym.circuits.get(circuit) if row.syntaxgym else None,  # type: ignore[misc]
            text=_percent,
            group="syntax tests",
        )


def _without_unknown(scored: Sequence[SyntaxGymFigures]) -> Iterator[Column]:
    """The same over items without unknown words; a mean where not every suite has such items."""
    yield Column(
        name="sg_score_without_unknown",
        heading="SG known words",
        value=lambda row: row.syntaxgym.sg_score_without_unknown if row.syntaxgym else None,
        text=_percent,
        group="syntax tests",
        is_wide=True,
    )
    sizes = {len(one.without_unknown) for one in scored if one.sg_score_without_unknown is None}
    yield Column(
        name="mean_over_suites_without_unknown",
        heading=f"known words, mean of {'/'.join(map(str, sorted(sizes)))} suites",
        value=lambda row: row.syntaxgym.mean_without_unknown if row.syntaxgym else None,
        text=_percent,
        group="syntax tests" if sizes else "data only",
        is_wide=True,
    )


def _suites(rows: Rows) -> Iterator[Column]:
    """Every suite, and every circuit and suite over items without unknown words."""
    names = dict.fromkeys(suite for row in rows if row.syntaxgym for suite in row.syntaxgym.suites)
    for suite in names:
        yield Column(
            name=f"suite, {suite}",
            value=lambda row, suite=suite: row.syntaxgym.suites.get(suite) if row.syntaxgym else None,  # type: ignore[misc]
            group="data only",
        )
    for circuit in circuits():
        yield Column(
            name=f"circuit_without_unknown, {circuit}",
            value=lambda row, circuit=circuit: (  # type: ignore[misc]
                row.syntaxgym.circuits_without_unknown.get(circuit) if row.syntaxgym else None
            ),
            group="data only",
        )
    for suite in names:
        yield Column(
            name=f"suite_without_unknown, {suite}",
            value=lambda row, suite=suite: row.syntaxgym.without_unknown.get(suite) if row.syntaxgym else None,  # type: ignore[misc]
            group="data only",
        )


def _pairs(rows: Rows) -> Iterator[Column]:
    for file in dict.fromkeys(one.file for row in rows for one in row.pairs):
        yield Column(
            name=f"minimal_pairs, {file}",
            heading=file.partition(".")[0],
            value=lambda row, file=file: next((one.accuracy for one in row.pairs if one.file == file), None),  # type: ignore[misc]
            text=_percent,
            group="syntax tests",
        )


def _tenths(value: Value) -> str:
    return f"{float(value):.1f}"


def _percent(value: Value) -> str:
    return f"{100 * float(value):.1f}"


def _whole(value: Value) -> str:
    return f"{float(value):,.0f}"


def _minutes(value: Value) -> str:
    minutes, seconds = divmod(round(float(value)), 60)
    return f"{minutes}:{seconds:02d}"
