"""The columns of a comparison, those that some row has, and its tables as Markdown, CSV and LaTeX."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter, methodcaller
from typing import Any, Literal

from treelm.evaluation.comparison.metrics import Comparison, F1Metric, RunMetrics
from treelm.evaluation.human.sap import EFFECTS, REGIONS
from treelm.evaluation.syntaxgym.results import circuits

Value = str | int | float | bool
Rows = Sequence[RunMetrics]
Get = Callable[[RunMetrics], "Value | None"]
Group = Literal["names", "figures", "sizes and speed", "syntax tests", "people", "data only"]
"""Part of the terminal's table, which is narrow, that shows a column; ``data only``: none, it is for programs."""
MISSING = "-"
_SHORT = {
    "Long-Distance Dependencies": "Long-Distance",
    "Garden-Path Effects": "Garden Path",
    "Gross Syntactic State": "Gross State",
    "Center Embedding": "Center Emb.",
    "MVRR garden path": "MVRR",
    "NP/S garden path": "NP/S",
    "NP/Z garden path": "NP/Z",
    "object - subject relative": "relative clause",
    "agreement violated": "agreement",
    "attachment, high": "attach high",
    "attachment, low": "attach low",
}
LEGEND = (
    "perplexity: per word, each sentence by itself, ends included; ≤: an upper bound. labelled F1: EVALB with "
    "COLLINS.prm. UF1: unlabelled, corpus level, by the protocol named; trivial: the best of left-, right-branching, "
    "balanced and random trees against the same gold trees; bound: the most that binary trees can. Syntax tests in "
    "percent. delta: what surprisals add to the prediction of reading times, 10^-3 nats a word; garden paths and the "
    "like: bits at the critical word, hard less easy sentence."
)
"""The headings of the columns, in words."""

_FORMULA = ("=", "+", "-", "@")
_LATEX = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "≤": r"$\leq$",
    "<": r"$<$",
    ">": r"$>$",
    "|": r"$|$",
    "[": "{[}",  # at the beginning of a row the end of the row before would take [ and * for its own
    "*": "{*}",
}


def _tenths(value: Value) -> str:
    return f"{float(value):.1f}"


def _percent(value: Value) -> str:
    return f"{100 * float(value):.1f}"


def _hundredths(value: Value) -> str:
    return f"{float(value):.2f}"


def _milli(value: Value) -> str:
    return f"{1000 * float(value):+.2f}"


def _signed(value: Value) -> str:
    return f"{float(value):+.2f}"


def _whole(value: Value) -> str:
    return f"{float(value):,.0f}"


def _millions(value: Value) -> str:
    return f"{float(value) / 1e6:.2f}M"


def _minutes(value: Value) -> str:
    minutes, seconds = divmod(round(float(value)), 60)
    return f"{minutes}:{seconds:02d}"


@dataclass(frozen=True)
class Column:
    """One column of the tables: a metric, or a property of the runs."""

    name: str  # in CSV
    heading: str  # in tables for eyes
    value: Get
    text: Callable[[Value], str] = str
    group: Group = "figures"
    is_wide: bool = False  # left out of the terminal, which is narrow
    better: Literal["lower", "higher"] | None = None
    among: Callable[[RunMetrics], Hashable] = lambda row: None
    """What rows must share for their values to compare."""

    def cell(self, row: RunMetrics) -> str:
        """The value for eyes, rounded; ``-`` where there is none."""
        value = self.value(row)
        return MISSING if value is None else self.text(value)


def columns_of(comparison: Comparison) -> list[Column]:
    """All columns that some row has a value for, in the order of the table."""
    rows = comparison.runs
    makers = (
        _names,
        _sizes,
        _perplexities,
        _labeled_f1,
        _unlabeled_f1,
        _speeds,
        _syntaxgym,
        _suites,
        _pairs,
        _reading,
        _babylm,
        _garden_paths,
    )
    everything = (column for maker in makers for column in maker(rows))
    return [column for column in everything if any(column.value(row) is not None for row in rows)]


def _data_only(name: str, value: Get) -> Column:
    return Column(name, "", value, group="data only")


def _names(rows: Rows) -> Iterator[Column]:
    yield Column("run", "run", attrgetter("name"), group="names")
    shown: Group = "sizes and speed" if any(row.system != row.name for row in rows) else "data only"
    yield Column("system", "system", attrgetter("system"), group=shown)


def _sizes(rows: Rows) -> Iterator[Column]:
    yield Column("parameters", "parameters", lambda row: row.num_parameters or None, _millions, "sizes and speed")
    yield Column("training_seconds", "training", attrgetter("training_seconds"), _minutes, "sizes and speed")


def _speeds(rows: Rows) -> Iterator[Column]:
    for kind in ("training", "scoring"):
        name = f"{kind}_words_per_second"
        yield Column(name, f"words/s {kind}", attrgetter(name), _whole, "sizes and speed")


def _perplexities(rows: Rows) -> Iterator[Column]:
    """Yield the perplexity that compares, with its bound, then others by name: of streams, per character."""
    same_words = attrgetter("vocabulary", "text", "needs_trees")
    yield _Bounded("perplexity", "perplexity", _of_main("value"), _tenths, better="lower", among=same_words)
    yield _data_only("is_upper_bound", _of_main("is_upper_bound"))
    main = {row.perplexity for row in rows}
    for name in dict.fromkeys(one.name for row in rows for one in row.perplexities if one not in main):
        heading = name.replace(" per word, with end of sentence", "").replace(", in a stream", " in a stream")
        value = _first("perplexities", "name", name, "value")
        yield _Bounded(name, heading, value, _tenths, better="lower", among=same_words)


class _Bounded(Column):
    """A perplexity, marked where it is an upper bound."""

    def cell(self, row: RunMetrics) -> str:
        """The value with ``≤`` before it if it is an upper bound."""
        cell = super().cell(row)
        return f"≤ {cell}" if cell != MISSING and row.perplexity and row.perplexity.is_upper_bound else cell


def _of_main(field: str) -> Get:
    """A field of the perplexity that compares."""
    return lambda row: None if row.perplexity is None else getattr(row.perplexity, field)


def _first(part: str, key: str, wanted: str, field: str) -> Get:
    """A field of the first of a row's values whose ``key`` is the one that is wanted."""
    return lambda row: next((getattr(one, field) for one in getattr(row, part) if getattr(one, key) == wanted), None)


def _labeled_f1(rows: Rows) -> Iterator[Column]:
    for protocol in _protocols(row.labeled_f1 for row in rows):
        value = _first("labeled_f1", "protocol", protocol, "corpus_f1")
        better: Any = {"better": "higher", "among": attrgetter("gold_trees", "text")}
        yield Column(f"labeled_f1, {protocol}", "labelled F1", value, _tenths, **better)


def _unlabeled_f1(rows: Rows) -> Iterator[Column]:
    """Yield for each protocol: F1 of the corpus, of sentences (data only), of the best trivial trees, and its bound."""
    for protocol in _protocols(row.unlabeled_f1 for row in rows):
        corpus, sentence = (_first("unlabeled_f1", "protocol", protocol, f"{one}_f1") for one in ("corpus", "sentence"))
        better: Any = {"better": "higher", "among": attrgetter("gold_trees", "text")}
        yield Column(f"unlabeled_f1, {protocol}", f"UF1 {protocol}", corpus, _tenths, **better)
        yield _data_only(f"unlabeled_f1_sentence, {protocol}", sentence)
        yield Column(f"trivial_f1, {protocol}", "trivial", methodcaller("trivial_f1", protocol), _tenths)
        yield Column(f"binary_upper_bound_f1, {protocol}", "bound", methodcaller("upper_bound_f1", protocol), _tenths)
    yield Column("gold_trees", "gold trees", attrgetter("gold_trees"))


def _protocols(metrics: Iterable[Sequence[F1Metric]]) -> list[str]:
    return list(dict.fromkeys(one.protocol for row in metrics for one in row))


def _gym(field: str, key: str | None = None) -> Get:
    """A field of a row's results on SyntaxGym; of accuracies by name, that of ``key``."""

    def value(row: RunMetrics) -> Value | None:
        found = None if row.syntaxgym is None else getattr(row.syntaxgym, field)
        return found if key is None or found is None else found.get(key)

    return value


def _syntaxgym(rows: Rows) -> Iterator[Column]:
    """The SG score, or the mean over what was scored where some suites were not, and the same over items without
    unknown words, a mean where not every suite has such items; then the circuits.
    """
    scored = [row.syntaxgym for row in rows if row.syntaxgym is not None]
    missing = {len(one.suites) for one in scored if one.sg_score is None}
    without = [one for one in scored if one.without_unknown]
    missing_without = {len(one.without_unknown) for one in without if one.sg_score_without_unknown is None}
    yield Column("sg_score", "SG score", _gym("sg_score"), _percent, "syntax tests", better="higher")
    known = _gym("sg_score_without_unknown")
    yield Column(
        "sg_score_without_unknown", "SG known words", known, _percent, "syntax tests", is_wide=True, better="higher"
    )
    known = _gym("mean_without_unknown")
    yield _mean("mean_over_suites_without_unknown", "known words, mean of", known, missing_without, is_wide=True)
    yield _mean("mean_over_suites", "mean of", _gym("mean"), missing, is_wide=False)
    for circuit in circuits():
        heading = _SHORT.get(circuit, circuit)
        value = _gym("circuits", circuit)
        yield Column(f"circuit, {circuit}", heading, value, _percent, "syntax tests", better="higher")


def _mean(name: str, heading: str, value: Get, sizes: set[int], *, is_wide: bool) -> Column:
    """A mean over suites, for eyes only where some row has no score over all of them."""
    numbers = "/".join(map(str, sorted(sizes)))
    group: Group = "syntax tests" if sizes else "data only"
    return Column(name, f"{heading} {numbers} suites", value, _percent, group, is_wide, better="higher")


def _suites(rows: Rows) -> Iterator[Column]:
    """Yield every suite, and every circuit and suite over items without unknown words."""
    names = dict.fromkeys(suite for row in rows if row.syntaxgym for suite in row.syntaxgym.suites)
    for suite in names:
        yield _data_only(f"suite, {suite}", _gym("suites", suite))
    for circuit in circuits():
        yield _data_only(f"circuit_without_unknown, {circuit}", _gym("circuits_without_unknown", circuit))
    for suite in names:
        yield _data_only(f"suite_without_unknown, {suite}", _gym("without_unknown", suite))


def _pairs(rows: Rows) -> Iterator[Column]:
    files = dict.fromkeys(one.file for row in rows for one in row.pairs)
    for file in files:
        value = _first("pairs", "file", file, "accuracy")
        same: Any = {"better": "higher", "among": _first("pairs", "file", file, "num_pairs")}
        yield Column(f"minimal_pairs, {file}", _short(file, files), value, _percent, "syntax tests", **same)


def _short(file: str, files: Iterable[str]) -> str:
    """The name of a file up to its first point, or all of it where another file has the same."""
    short = file.partition(".")[0]
    return file if sum(one.partition(".")[0] == short for one in files) > 1 else short


def _reading(rows: Rows) -> Iterator[Column]:
    """Yield for each corpus: what surprisals add, its interval and the perplexity on its words (data only)."""
    for corpus in dict.fromkeys(row.reading.corpus for row in rows if row.reading):
        heading, delta = f"delta {corpus.replace('-', ' ')}", _gain(corpus, "delta_nats_per_word")
        yield Column(f"reading_delta_nats_per_word, {corpus}", heading, delta, _milli, "people")
        for field in ("low", "high", "perplexity"):
            yield _data_only(f"reading_{field}, {corpus}", _gain(corpus, field))


def _babylm(rows: Rows) -> Iterator[Column]:
    """Yield both reading scores of the BabyLM challenge."""
    for field, heading in (("eye_tracking", "BabyLM eyes"), ("self_paced_reading", "BabyLM reading")):
        yield Column(f"babylm_{field}", heading, _babylm_score(field), _hundredths, "people")


def _babylm_score(field: str) -> Get:
    return lambda row: getattr(row.reading.babylm, field) if row.reading and row.reading.babylm else None


def _gain(corpus: str, field: str) -> Get:
    """A field of what a row's surprisals add to the prediction of a corpus."""

    def value(row: RunMetrics) -> Value | None:
        return None if row.reading is None or row.reading.corpus != corpus else getattr(row.reading.gain, field)

    return value


def _garden_paths(rows: Rows) -> Iterator[Column]:
    """Yield the effects at the critical word; those at the words after it are data only."""
    for effect in EFFECTS:
        for region in REGIONS:
            name = f"effect_bits, {effect.name}, {region}"
            group: Group = "people" if region == REGIONS[0] else "data only"
            yield Column(name, _SHORT.get(effect.title, effect.title), _effect(effect.name, region), _signed, group)


def _effect(effect: str, region: int) -> Get:
    return lambda row: None if row.garden_paths is None else row.garden_paths.bits(effect, region)


def shown_columns(comparison: Comparison) -> list[Column]:
    """Columns for eyes: all but those that are data only."""
    return [column for column in columns_of(comparison) if column.group != "data only"]


def as_markdown(comparison: Comparison) -> str:
    """A table of GitHub's Markdown, the legend and the notes below it."""
    columns = shown_columns(comparison)
    lines = [[column.heading for column in columns], ["---", *("---:" for _ in columns[1:])]]
    lines += [[column.cell(row) for column in columns] for row in comparison.runs]
    table = "\n".join(f"| {' | '.join(map(_markdown, line))} |" for line in lines)
    notes = "".join(f"* {note}\n" for note in comparison.notes)
    return f"{table}\n\n{LEGEND}\n\n{notes}"


def _markdown(cell: str) -> str:
    return cell.replace("|", r"\|").replace("<", "&lt;")


def as_csv(comparison: Comparison) -> str:
    """All columns, those for eyes and others, unrounded: F1 in 0..100, accuracies in 0..1; empty where there is none.

    ``is_upper_bound`` (0 or 1) is about every perplexity of the row. A text that begins as a formula would, such as the
    name of a run ``=1+1``, has an apostrophe before it: spreadsheets would compute it.
    """
    columns = columns_of(comparison)
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow([column.name for column in columns])
    for row in comparison.runs:
        writer.writerow([_plain(column.value(row)) for column in columns])
    return stream.getvalue()


def _plain(value: Value | None) -> Value:
    if value is None:
        return ""
    if isinstance(value, str) and value.startswith(_FORMULA):
        return f"'{value}"
    return int(value) if isinstance(value, bool) else value


def as_latex(comparison: Comparison) -> str:
    """A tabular with the rules of booktabs; the notes are comments below it."""
    return "".join(f"{line}\n" for line in _latex_lines(comparison, shown_columns(comparison)))


def _latex_lines(comparison: Comparison, columns: Sequence[Column]) -> Iterator[str]:
    yield r"% \usepackage{booktabs}"
    yield rf"\begin{{tabular}}{{l{'r' * (len(columns) - 1)}}}"
    yield r"\toprule"
    yield _latex_row([column.heading for column in columns])
    yield r"\midrule"
    for row in comparison.runs:
        yield _latex_row([column.cell(row) for column in columns])
    yield r"\bottomrule"
    yield r"\end{tabular}"
    yield from (f"% {line}" for note in (LEGEND, *comparison.notes) for line in note.splitlines())


def _latex_row(cells: Sequence[str]) -> str:
    return " & ".join(map(latex_text, cells)) + r" \\"


def latex_text(text: str) -> str:
    """Escape every character that LaTeX takes for a command."""
    return "".join(_LATEX.get(character, character) for character in text)
