"""The data frame of a comparison: a row for each run, a column for each metric that some run has, and its tables."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any, Literal

from treelm.errors import InputError, choose_from
from treelm.evaluation.comparison.metrics import FILE_NAME, Comparison, RunMetrics
from treelm.evaluation.human.sap import EFFECTS, REGIONS
from treelm.evaluation.intervals import interval, paired_interval
from treelm.evaluation.tables import MISSING, Bold, Table
from treelm.io.atomic import write_atomically
from treelm.models.perplexity import UNCONVERGED

if TYPE_CHECKING:
    import pandas

METRICS, SYNTAX = "Perplexity and trees", "Tests of syntax, correct in percent"
HUMAN, SPEED = "Human data: reading times, and effects in bits", "Sizes and speed"
TABLES = (METRICS, SYNTAX, HUMAN, SPEED)
"""Titles of the tables in which the columns are shown."""
NAMES, DATA_ONLY = "names", "data only"
"""Other groups: shown beside every table; only in files."""
LEGEND = {
    "perplexity": "perplexity: per word, each sentence by itself, ends included.",
    "is_upper_bound": "≤: an upper bound, which a wider search may lower.",
    "unknown_words": "unknown %: words that are not in the vocabulary.",
    "words_spelled_by_bytes": "by bytes %: words that bytes spell.",
    UNCONVERGED.replace(" ", "_"): "not converged %: words whose search has not converged.",
    "labeled_f1": "labelled F1: EVALB with COLLINS.prm.",
    "unlabeled_f1": "UF1: unlabelled, corpus level, by the protocol named.",
    "gold_trees": "n: sentences scored.",
    "trivial_f1": "trivial: the best of left-, right-branching, balanced and random trees against the same gold trees.",
    "binary_upper_bound_f1": "bound: the highest F1 that binary trees can reach, beside such alone.",
    SYNTAX: "Syntax tests in percent.",
    HUMAN: (
        "delta: gain in held-out log-likelihood of reading times when surprisal joins the regression, 10^-3 nats a "
        "word; garden paths and the like: bits at the critical word, difference hard - easy sentence."
    ),
    NAMES: "Bold: the best of its column for certain, among rows that compare.",
}
"""What the headings of columns mean, by name of the metric or group."""
SEEDS, DIFFERENCE = ("mean", "deviation", "half_interval"), ("difference", "low", "high")
"""Kinds of columns that say of another column how seeds of the run's model vary, and how the model differs from the
first one: ``mean, perplexity`` and ``difference, perplexity, less MODEL``."""
_TENTHS, _HUNDREDTHS, _SIGNED, _WHOLE = "{:.1f}".format, "{:.2f}".format, "{:+.2f}".format, "{:,.0f}".format
FILES = {"json": FILE_NAME, "markdown": "comparison.md", "csv": "comparison.csv", "latex": "comparison.tex"}
"""Names of the files that keep a comparison, by format."""


def _scaled(form: str, factor: float) -> Callable[[float], str]:
    return lambda value: form.format(factor * value)


def _minutes(seconds: float) -> str:
    return "{}:{:02d}".format(*divmod(round(seconds), 60))


_PERCENT, _MILLI, _MILLIONS = _scaled("{:.1f}", 100), _scaled("{:+.2f}", 1000), _scaled("{:.2f}M", 1e-6)


@dataclass(frozen=True)
class Column:
    """A column of the frame, or the specification of a kind of columns: which they are, and how they are displayed.

    The columns of a kind name after a comma what their values are of, such as ``unlabeled_f1, plain``: this stands for
    ``{}`` in the heading and in the names of other columns.
    """

    name: str  # name in the frame, and in files for programs
    heading: str = ""  # name in displayed tables
    text: Callable[[Any], str] = str  # writes a value, rounded and in its unit
    group: str = DATA_ONLY  # the table that shows it
    better: Literal["lower", "higher"] | None = None  # which values are better; None if the column is not a metric
    comparable_if_equal: tuple[str, ...] = ()  # columns whose values rows must share for theirs to compare
    upper_bound_flag: str = ""  # column that tells whether the value is an upper bound
    count: str = ""  # column of the numbers of sentences or suites, which stand in the heading
    in_place_of: str = ""  # column beside which this one is only in files, unless a run lacks that column's value
    short: Callable[[str], str] = str  # how the heading names what the values are of

    def part(self, name: str) -> str | None:
        """What the values of a column of this kind are of; None for columns of other kinds."""
        kind, _, of = name.partition(f"{self.name}, ")
        return "" if name == self.name else of if of and not kind else None


def _perplexity(name: str, heading: str) -> Column:
    comparable = ("vocabulary", "text", "needs_trees")
    return Column(name, heading, _TENTHS, METRICS, "lower", comparable, "is_upper_bound")


def _f1(kind: str, heading: str) -> Column:
    options: dict[str, Any] = {"count": f"num_sentences_{kind}, {{}}", "short": lambda of: of.partition(" (")[0]}
    return Column(kind, heading, _TENTHS, METRICS, "higher", ("gold_trees", "text"), **options)


def _share(name: str, heading: str, comparable: tuple[str, ...] = (), **options: Any) -> Column:
    return Column(name, heading, _PERCENT, SYNTAX, "higher", comparable, **options)


def _mean(items: str, heading: str) -> Column:
    return _share(f"mean_over_suites{items}", heading, count=f"num_suites{items}", in_place_of=f"sg_score{items}")


COLUMNS: Sequence[Sequence[Column]] = (
    [Column("run", "run", group=NAMES)],
    [Column("system", "system", group=SPEED)],
    [Column("parameters", "parameters", _MILLIONS, SPEED)],
    [Column("training_seconds", "training", _minutes, SPEED)],
    [_perplexity("perplexity", "perplexity")],
    [Column("is_upper_bound")],
    [Column("unknown_words", "unknown %", _PERCENT, METRICS)],
    [Column("words_spelled_by_bytes", "by bytes %", _PERCENT, METRICS)],
    [Column(UNCONVERGED.replace(" ", "_"), "not converged %", _PERCENT, METRICS)],
    [
        _perplexity("perplexity per word, with end of sentence", "perplexity {}"),
        _perplexity("perplexity per symbol, with end of sentence", "perplexity per symbol {}"),
        _perplexity("perplexity per character, with end of sentence", "perplexity per character {}"),
    ],
    [_f1("labeled_f1", "labelled F1 {}"), Column("num_sentences_labeled_f1")],
    [
        _f1("unlabeled_f1", "UF1 {}"),
        Column("num_sentences_unlabeled_f1"),
        Column("unlabeled_f1_sentence"),
        Column("trivial_f1", "trivial", _TENTHS, METRICS),
        Column("binary_upper_bound_f1", "bound", _TENTHS, METRICS),
    ],
    [Column("gold_trees", "gold trees", group=METRICS)],
    [Column("training_words_per_second", "words/s training", _WHOLE, SPEED)],
    [Column("scoring_words_per_second", "words/s scoring", _WHOLE, SPEED)],
    [_share("sg_score", "SG score")],
    [_share("sg_score_without_unknown", "SG known words")],
    [_mean("_without_unknown", "known words, mean of suites")],
    [_mean("", "mean of suites")],
    [_share("circuit", "{}")],
    [Column("suite")],
    [Column("circuit_without_unknown")],
    [Column("suite_without_unknown")],
    [_share("minimal_pairs", "{}", ("num_pairs, {}",), short=lambda file: file.partition(".")[0])],
    [
        Column("reading_delta_nats_per_word", "delta {}", _MILLI, HUMAN, short=lambda of: of.replace("-", " ")),
        *(Column(f"reading_{name}") for name in ("low", "high", "perplexity")),
    ],
    [Column("babylm_eye_tracking", "BabyLM eyes", _HUNDREDTHS, HUMAN)],
    [Column("babylm_self_paced_reading", "BabyLM reading", _HUNDREDTHS, HUMAN)],
    *(
        [Column(f"effect_bits, {one.name}, {region}", one.title, _SIGNED, DATA_ONLY if region else HUMAN)]
        for one in EFFECTS
        for region in REGIONS
    ),
    [Column(name) for name in SEEDS],
    [Column(name) for name in DIFFERENCE],
)
"""All kinds of columns in the order in which they are displayed; columns of kinds that stand in one list take turns."""
_OF_RUNS = ("system", "is_upper_bound", "gold_trees", "vocabulary", "text", "needs_trees")
"""Attributes of runs that are columns of the frame beside their values; the last three are never shown, and used only
to decide which rows compare."""


def _columns(data: pandas.DataFrame) -> Iterator[Column]:
    """Yield the columns in which some run has a value, in the order in which they are displayed."""
    measured = [str(name) for name in data if data[name].notna().any()]
    for kind in COLUMNS:
        parts = dict.fromkeys(of for name in measured for one in kind if (of := one.part(name)) is not None)
        for of in parts:
            for one in kind:
                shorts = [*map(one.short, parts)]
                label = of if shorts.count(one.short(of)) > 1 else one.short(of)
                column = replace(
                    one,
                    name=f"{one.name}, {of}" if of else one.name,
                    heading=one.heading.format(label),
                    comparable_if_equal=tuple(name.format(of) for name in one.comparable_if_equal),
                    count=one.count.format(of),
                )
                if column.name in measured:
                    yield _fitted(column, data)


def _fitted(column: Column, data: pandas.DataFrame) -> Column:
    """A column as these runs need it: with counts in its heading, and only in files where others say the same."""
    counts = sorted({*data[column.count].dropna()}) if column.count in data else []
    heading = f"{column.heading}, n={'/'.join(f'{one:,}' for one in counts)}" if counts else column.heading
    is_told = {
        "system": (data["system"] == data["run"]).all(),
        "gold_trees": data["gold_trees"].nunique() < 2,  # the legend says which they are
    }.get(column.name, False)
    if column.in_place_of in data:
        is_told = not (data[column.name].notna() & data[column.in_place_of].isna()).any()
    return replace(column, heading=heading, group=DATA_ONLY if is_told else column.group)


def seed_numbers(rows: Sequence[RunMetrics]) -> list[int]:
    """Group rows that differ only by the seed of their training: for each row, the number of the first of its group.

    Rows with other texts, searches, vocabularies or training data are of different groups, as are two rows of one
    model (equal weights).
    """
    first: dict[Hashable, int] = {}
    weights: set[Hashable] = set()
    numbers = []
    for number, row in enumerate(rows):
        key: Hashable = (
            row.system, row.recipe, row.text, row.vocabulary, row.search, row.data_identity.get("train", "")
        )  # fmt: skip
        if not row.recipe or (row.weights and (key, row.weights) in weights):
            key = number
        weights.add((key, row.weights))
        numbers.append(first.setdefault(key, number))
    return numbers


@dataclass(frozen=True, kw_only=True)
class Standing:
    """A metric of a model: the value of its run, or the mean over the runs of its seeds."""

    model: str  # name of the run; of several seeds, that of their system
    rows: Sequence[int]  # of the frame
    mean: float
    deviation: float | None  # standard deviation over seeds; None for one seed
    half_interval: float | None  # half the width of the 95 % interval of the mean (Student's t)
    is_bound: bool  # whether the value is an upper bound, which says nothing of how much lower the model may be

    def is_before(self, other: Standing, better: str | None) -> bool:
        """Tell whether this model is certainly better: an upper bound may be, unless the other is one, too."""
        return not other.is_bound and (self.mean > other.mean if better == "higher" else self.mean < other.mean)


@dataclass(frozen=True)
class ComparisonFrame:
    """Values of all columns, unrounded: F1 in 0..100, accuracies in 0..1; None where a run has none."""

    data: pandas.DataFrame
    columns: Sequence[Column]
    seeds: Sequence[int]  # the number of the first row of the same model, for each row
    comparison: Comparison
    """The comparison that the frame was made from."""

    @property
    def legend(self) -> list[str]:
        """What was scored and what the headings mean, then the notes of the comparison."""
        seeds = " ±: standard deviation over seeds." * (len(set(self.seeds)) < len(self.seeds))
        kinds = {row.gold_trees for row in self.comparison.runs if row.gold_trees is not None}
        gold = f" F1 is against trees of {' or '.join(sorted(kinds))}." if kinds else ""
        shown = {part for one in self.columns for part in (one.name.partition(",")[0], one.group)}
        legend = [self.comparison.evaluated_on, *(text for of, text in LEGEND.items() if of in shown)]
        return [" ".join(legend) + gold + seeds, *self.comparison.notes]

    @classmethod
    def of(cls, comparison: Comparison, names: Sequence[str] = ()) -> ComparisonFrame:
        """Make the frame of a comparison, with the columns that some run has a value for.

        With ``names``, only these columns are displayed, in this order. Raises ``InputError`` for a name that is not
        one of the columns.
        """
        import pandas

        rows = [
            {"run": row.name, **{name: getattr(row, name) for name in _OF_RUNS}, **row.values}
            for row in comparison.runs
        ]
        data = pandas.DataFrame(rows, columns=["run", *_OF_RUNS] if not rows else None, dtype=object)
        data = data.where(data.notna(), None)
        columns = list(_columns(data))
        if names:
            columns = [columns[0], *(_named(name, columns) for name in dict.fromkeys(names))]
        return cls(data, columns, seed_numbers(comparison.runs), comparison)

    def public(self) -> pandas.DataFrame:
        """All columns, unrounded; None where there is none."""
        return self.data[[column.name for column in self.columns]]

    def to_csv(self) -> str:
        """Write ``public`` as CSV, with ``is_upper_bound`` as 0 or 1, and nothing where there is no value.

        Texts that spreadsheets would compute, such as ``=1+1``, begin with an apostrophe.
        """
        text: str = self.public().map(_plain).to_csv(index=False, lineterminator="\n")
        return text

    def to_markdown(self) -> str:
        """A table of GitHub's Markdown, the legend and the notes below it."""
        legend, *notes = self.legend
        listed = "".join(f"* {note}\n" for note in notes)
        differences = "".join(f"{one.title}:\n\n{one.to_markdown()}\n" for one in self.difference_tables())
        return f"{self.table().to_markdown()}\n{differences}{legend}\n\n{listed}"

    def to_latex(self) -> str:
        """A tabular with the rules of booktabs; legend and notes are comments below it."""
        comments = "".join(f"% {line}\n" for note in self.legend for line in note.splitlines())
        differences = "".join(f"% {one.title}\n{one.to_latex()}" for one in self.difference_tables())
        return f"% \\usepackage{{booktabs}}\n{self.table().to_latex()}{differences}{comments}"

    def tables(self) -> list[Table]:
        """A table of the runs for each group of columns, then differences."""
        found = [self.table(columns, title=title) for title in TABLES if (columns := self.shown(title))]
        return found + self.difference_tables()

    def difference_tables(self) -> list[Table]:
        """A table of differences from the first model, if there are any."""
        metrics = {name.partition(", ")[2]: name for name in self.data if name.startswith("difference, ")}
        if not metrics:
            return []
        (other,) = {name.partition(", less ")[2] for name in metrics}
        columns = [one for one in self.columns if f"{one.name}, less {other}" in metrics]
        rows = []
        for model in dict.fromkeys(self.seeds):
            cells = [self._difference_text(column, model, other) for column in columns]
            rows += [[self._model(model), *cells]] if set(cells) - {MISSING} else []
        units, how = self.comparison.runs[0].units, ""
        if units is not None and (sums := units.of(columns[0].name)) is not None:
            how = f" [95% interval of a paired bootstrap by {units.unit}, n={len(sums):,}]"
        headings = ["model", *(column.heading for column in columns)]
        return [Table(headings=headings, rows=rows, title=f"Difference from {other}{how}")]

    def _difference_text(self, column: Column, model: int, other: str) -> str:
        value, low, high = (self.data[f"{of}, {column.name}, less {other}"][model] for of in DIFFERENCE)
        is_upper, is_lower = (any(self._is_bound(column, row) for row in self._rows(one)) for one in (model, 0))
        sign = "≤ " if is_upper else "≥ " if is_lower else ""
        return MISSING if value is None else f"{sign}{value:+.1f} [{low:+.1f}, {high:+.1f}]"

    def _rows(self, model: int) -> list[int]:
        """The rows of the seeds of a model."""
        return [row for row, seed in enumerate(self.seeds) if seed == self.seeds[model]]

    def _model(self, model: int) -> str:
        """The name of a model: that of its run, or of several seeds that of their system."""
        return str(self.data["run" if len(self._rows(model)) == 1 else "system"][model])

    def shown(self, *groups: str) -> list[Column]:
        """The displayed columns, or those of some groups, without names."""
        return [column for column in self.columns if column.group in (groups or TABLES)]

    def table(self, columns: Sequence[Column] | None = None, **options: Any) -> Table:
        """A table of the runs in some columns, by default all displayed ones, then means of models of several seeds.

        Rows without any value are left out. What is certainly the best of its column is bold. ``options`` are those
        of ``Table``.
        """
        columns = self.shown() if columns is None else columns
        several = [model for model in dict.fromkeys(self.seeds) if self.seeds.count(model) > 1]
        several = several if any(column.better for column in columns) else []
        names = [*self.data["run"]]
        names += [f"{self.data['system'][model]}, mean of {self.seeds.count(model)} seeds" for model in several]
        rows = zip(names, *(self._cells(column, several) for column in columns), strict=True)
        told = [row for row in rows if {*row[1:]} - {MISSING}]
        return Table(headings=["run", *(column.heading for column in columns)], rows=told, **options)

    def _cells(self, column: Column, several: Sequence[int]) -> list[str]:
        """The cells of a column: of all runs, then of the means of models of ``several`` seeds.

        Means are empty if the column is not a metric.
        """
        groups = self.standings(column) if column.better else []
        best = [one.rows for group in groups if len(group) > 1 for one in _leaders(column, group)]
        means = {one.rows[0]: one for group in groups for one in group}
        rows: list[Sequence[int]] = [[row] for row in range(len(self.data))]
        cells = [_text(column, value, self._is_bound(column, row)) for row, value in enumerate(self.data[column.name])]
        for one in map(means.get, several):
            deviation = f" ± {column.text(one.deviation)}" if one and one.deviation is not None else ""
            rows.append(one.rows if one else ())
            cells.append(f"{_text(column, one.mean, one.is_bound)}{deviation}" if one else "")
        return [Bold(cell) if of in best else cell for of, cell in zip(rows, cells, strict=True)]

    def _is_bound(self, column: Column, row: int) -> bool:
        return bool(column.upper_bound_flag in self.data and self.data[column.upper_bound_flag][row])

    def standings(self, column: Column) -> list[list[Standing]]:
        """Order models by a metric, the best first, in groups of models whose values compare.

        A model has one value for all of its seeds; models that lack the metric are left out.
        """
        groups: dict[Hashable, list[Standing]] = {}
        for model in dict.fromkeys(self.seeds):
            rows = self._rows(model)
            values = [value for row in rows if (value := self.data[column.name][row]) is not None]
            if len(values) == len(rows):
                key = tuple(
                    self.data[name][model] if name in self.data else None for name in column.comparable_if_equal
                )
                varied = values if math.isfinite(sum(values)) else values[:1]  # of infinite ones there is no deviation
                standing = Standing(
                    model=self._model(model),
                    rows=rows,
                    mean=fmean(values),
                    deviation=stdev(varied) if len(varied) > 1 else None,
                    half_interval=interval(varied),
                    is_bound=any(self._is_bound(column, row) for row in rows),
                )
                groups.setdefault(key, []).append(standing)
        is_high = column.better == "higher"
        return [sorted(group, key=lambda one: one.mean, reverse=is_high) for group in groups.values()]

    def with_uncertainty(self) -> Comparison:
        """The comparison with means over seeds, and with the differences of all models from the first one.

        A difference is there where values compare, where bounds leave no doubt about its sign, and where the sums by
        unit are known.
        """
        runs = self.comparison.runs
        values = [
            {name: value for name, value in row.values.items() if name.partition(", ")[0] not in SEEDS + DIFFERENCE}
            for row in runs
        ]
        for column in self.shown():
            for group in self.standings(column) if column.better else ():
                first = next((one for one in group if 0 in one.rows), None)
                for one in group:
                    found = self._difference(column, one, first) if first and one is not first else {}
                    if one.deviation is not None:
                        found |= {f"{name}, {column.name}": getattr(one, name) for name in SEEDS}
                    for row in one.rows:
                        values[row] |= found
        rows = tuple(replace(row, values=own) for row, own in zip(runs, values, strict=True))
        return replace(self.comparison, runs=rows)

    def _difference(self, column: Column, one: Standing, other: Standing) -> dict[str, float]:
        """The difference of two models, ``one`` less ``other``, with the 95 % interval of a paired bootstrap.

        There is none if bounds leave open which of them is better, and if sums by unit are not known.
        """
        for bound, rival in ((one, other), (other, one)):
            if bound.is_bound and not bound.is_before(rival, column.better):
                return {}
        units = [[self.comparison.runs[row].units for row in each.rows] for each in (one, other)]
        sums = [[of for each in own if each and (of := each.of(column.name)) is not None] for own in units]
        if [*map(len, sums)] != [*map(len, units)] or len({of.shape for each in sums for of in each}) > 1:
            return {}
        values = (one.mean - other.mean, *paired_interval(*sums))
        names = (f"{of}, {column.name}, less {other.model}" for of in DIFFERENCE)
        return dict(zip(names, values, strict=True))


def _leaders(column: Column, group: Sequence[Standing]) -> list[Standing]:
    """The best of models whose values compare: several if they are equal, none if bounds leave open which it is."""
    first = [one for one in group if not any(other.is_before(one, column.better) for other in group)]
    return first if len(first) == 1 or not any(one.is_bound for one in first) else []


def _text(column: Column, value: Any, is_bound: bool) -> str:
    """A value as it is displayed; ``≤`` marks an upper bound."""
    return MISSING if value is None else f"{'≤ ' * is_bound}{column.text(value)}"


def _named(name: str, columns: Sequence[Column]) -> Column:
    """Find a column by its name or heading; a column that is otherwise only in files is displayed under its name.

    Raises ``InputError`` if there is none.
    """
    known = [one for one in columns if one.group != NAMES]
    for one in known:
        if name in (one.name, one.heading, one.name.partition(",")[0]):
            if one.group == DATA_ONLY:
                one = replace(one, heading=one.heading or one.name, text=_any, group=METRICS)
            return one
    raise InputError(f"no column {name!r}", remedy=choose_from(name, [one.heading or one.name for one in known]))


def _any(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _plain(value: Any) -> Any:
    if value is None:
        return ""
    if isinstance(value, str) and value.startswith(("=", "+", "-", "@")):
        return f"'{value}"
    return int(value) if isinstance(value, bool) else value


def write_files(comparison: Comparison, folder: Path, columns: Sequence[str] = ()) -> None:
    """Write a comparison into a folder in every format; Markdown and LaTeX have the ``columns`` that are named."""
    folder.mkdir(parents=True, exist_ok=True)
    comparison.save(folder / FILES["json"])
    for format in ("markdown", "csv", "latex"):
        write_atomically(folder / FILES[format], text_of(comparison, format, columns).encode())


def text_of(comparison: Comparison, format: str, columns: Sequence[str] = ()) -> str:
    """The table as ``markdown``, ``csv``, which has all columns, or ``latex``."""
    frame = ComparisonFrame.of(comparison, () if format == "csv" else columns)
    return {"markdown": frame.to_markdown, "csv": frame.to_csv, "latex": frame.to_latex}[format]()
