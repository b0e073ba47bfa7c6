"""The data frame of a comparison: a row for each run, a column for each metric that some run has, and its tables."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any, Literal

from treelm.errors import InputError, choose_from
from treelm.evaluation.comparison.metrics import BOUND, FILE_NAME, TRIVIAL, Comparison, Difference, RunMetrics, SeedMean
from treelm.evaluation.human.sap import EFFECTS, REGIONS
from treelm.evaluation.intervals import interval, paired_interval
from treelm.evaluation.syntaxgym.results import circuits
from treelm.evaluation.tables import MISSING, Bold, Table
from treelm.io.atomic import write_atomically
from treelm.models.perplexity import UNCONVERGED

if TYPE_CHECKING:
    import pandas

METRICS, SYNTAX = "Perplexity and trees", "Tests of syntax, correct in percent"
HUMAN, SPEED = "Human data: reading times, and effects in bits", "Sizes and speed"
TABLES = (METRICS, SYNTAX, HUMAN, SPEED)
"""Titles of the tables in which the columns are shown."""
NAMES, DATA_ONLY, HIDDEN = "names", "data only", "hidden"
"""Other groups: shown beside every table; only in files; never shown, used only to decide which rows compare."""
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
SHARES = {
    "unknown words": "unknown %",
    "words spelled by bytes": "by bytes %",
    UNCONVERGED: "not converged %",
}
"""Headings of what must be known of the words beside a perplexity."""
SEEDS = ("mean", "deviation", "half_interval")
_TENTHS, _HUNDREDTHS, _SIGNED, _WHOLE = "{:.1f}".format, "{:.2f}".format, "{:+.2f}".format, "{:,.0f}".format
Value = Callable[[RunMetrics], Any]
FILES = {"json": FILE_NAME, "markdown": "comparison.md", "csv": "comparison.csv", "latex": "comparison.tex"}
"""Names of the files that keep a comparison, by format."""


@dataclass(frozen=True)
class Column:
    """A metric of runs, and how its values are displayed."""

    name: str  # name in the frame, and in files for programs
    value: Value  # gives the value of a run, None where it has none
    heading: str = ""  # name in displayed tables
    text: Callable[[Any], str] = str  # writes a value, rounded and in its unit
    group: str = DATA_ONLY  # the table that shows it
    better: Literal["lower", "higher"] | None = None  # which values are better; None if the column is not a metric
    comparable_if_equal: tuple[str, ...] = ()  # columns whose values rows must share for theirs to compare
    upper_bound_flag: str = ""  # column that tells whether the value is an upper bound


def _get(*path: str, **having: Any) -> Value:
    """Make a getter that follows ``path`` through attributes and mapping keys, and gives None where one is missing.

    Of a tuple of records it takes the first one whose attributes equal ``having``.
    """

    def value(row: RunMetrics) -> Any:
        found: Any = row
        for name in path:
            found = found.get(name) if isinstance(found, Mapping) else found and getattr(found, name)
            records = found if isinstance(found, tuple) else (found,)
            fits = (one for one in records if all(getattr(one, key, wish) == wish for key, wish in having.items()))
            found = next(fits, None)
        return found

    return value


def _scaled(form: str, factor: float) -> Callable[[float], str]:
    return lambda value: form.format(factor * value)


def _minutes(seconds: float) -> str:
    return "{}:{:02d}".format(*divmod(round(seconds), 60))


def _columns(rows: Sequence[RunMetrics]) -> Iterator[Column]:
    """Yield all columns in which some of these runs may have a value, in the order in which they are displayed."""
    of_system = SPEED if any(row.system != row.name for row in rows) else DATA_ONLY
    yield Column("run", _get("name"), "run", group=NAMES)
    yield Column("system", _get("system"), "system", group=of_system)
    yield Column("parameters", lambda row: row.num_parameters or None, "parameters", _scaled("{:.2f}M", 1e-6), SPEED)
    yield Column("training_seconds", _get("training_seconds"), "training", _minutes, SPEED)
    yield from _perplexities(rows)
    for name in dict.fromkeys(one.protocol for row in rows for one in row.labeled_f1):
        yield from _f1(rows, "labeled_f1", name, f"labelled F1 {name.partition(' (')[0]}")
    for name in dict.fromkeys(one.protocol for row in rows for one in row.unlabeled_f1):
        yield from _f1(rows, "unlabeled_f1", name, f"UF1 {name}")
        yield Column(f"unlabeled_f1_sentence, {name}", _get("unlabeled_f1", "sentence_f1", protocol=name))
        for key, heading, names in (("trivial_f1", "trivial", TRIVIAL), ("binary_upper_bound_f1", "bound", BOUND)):
            value = partial(RunMetrics.baseline_f1, protocol=name, names=names)
            yield Column(f"{key}, {name}", value, heading, _TENTHS, METRICS)
    differ = len({row.gold_trees for row in rows} - {None}) > 1  # else the legend says which they are
    yield Column("gold_trees", _get("gold_trees"), "gold trees", group=METRICS if differ else DATA_ONLY)
    for kind in ("training", "scoring"):
        name = f"{kind}_words_per_second"
        yield Column(name, _get(name), f"words/s {kind}", _WHOLE, SPEED)
    yield from _syntaxgym(rows)
    files = dict.fromkeys(one.file for row in rows for one in row.pairs)
    shorts = [file.partition(".")[0] for file in files]
    for file, short in zip(files, shorts, strict=True):
        heading, number = file if shorts.count(short) > 1 else short, f"num_pairs, {file}"
        yield _share(
            f"minimal_pairs, {file}", _get("pairs", "accuracy", file=file), heading, comparable_if_equal=(number,)
        )
        yield Column(number, _get("pairs", "num_pairs", file=file), group=HIDDEN)
    yield from _human(rows)
    for name in ("vocabulary", "text", "needs_trees"):
        yield Column(name, _get(name), group=HIDDEN)


def _perplexities(rows: Sequence[RunMetrics]) -> Iterator[Column]:
    """Yield the perplexity by which runs compare, shares of words beside it, and other perplexities by their names."""
    comparable: tuple[str, ...] = ("vocabulary", "text", "needs_trees")

    def column(name: str, value: Value, heading: str) -> Column:
        return Column(
            name,
            value,
            heading,
            _TENTHS,
            METRICS,
            better="lower",
            comparable_if_equal=comparable,
            upper_bound_flag="is_upper_bound",
        )

    yield column("perplexity", _get("perplexity", "value"), "perplexity")
    yield Column("is_upper_bound", _get("perplexity", "is_upper_bound"))
    for name in dict.fromkeys(name for row in rows if row.coverage is not None for name in row.coverage.shares):
        value = _get("coverage", "shares", name)
        yield Column(name.replace(" ", "_"), value, SHARES[name], _scaled("{:.1f}", 100), METRICS)
    for name in dict.fromkeys(one.name for row in rows for one in row.perplexities if one != row.perplexity):
        heading = name.replace(" per word, with end of sentence", "").replace(", in a stream", " in a stream")
        yield column(name, _get("perplexities", "value", name=name), heading)


def _f1(rows: Sequence[RunMetrics], kind: str, protocol: str, heading: str) -> Iterator[Column]:
    """Yield F1 by a protocol, with the number of sentences in its heading, and a column of that number."""
    value, count = _get(kind, "corpus_f1", protocol=protocol), _get(kind, "num_sentences", protocol=protocol)
    counts = sorted({found for row in rows if (found := count(row)) is not None})
    heading += f", n={'/'.join(f'{one:,}' for one in counts)}" if counts else ""
    comparable = ("gold_trees", "text")
    yield Column(f"{kind}, {protocol}", value, heading, _TENTHS, METRICS, "higher", comparable_if_equal=comparable)
    yield Column(f"num_sentences_{kind}, {protocol}", count)


def _share(name: str, value: Value, heading: str, group: str = SYNTAX, **options: Any) -> Column:
    return Column(name, value, heading, _scaled("{:.1f}", 100), group, better="higher", **options)


def _syntaxgym(rows: Sequence[RunMetrics]) -> Iterator[Column]:
    """Columns of SyntaxGym: SG score with and without unknown words, circuits and suites.

    Where runs lack the SG score because a suite was not scored, means over the suites that were scored are shown.
    """
    scored = [row.syntaxgym for row in rows if row.syntaxgym is not None]
    sizes = {len(one.suites) for one in scored if one.sg_score is None}
    known_sizes = {
        len(one.without_unknown) for one in scored if one.without_unknown and one.sg_score_without_unknown is None
    }
    mean, known_mean = (f"mean of {'/'.join(map(str, sorted(found)))} suites" for found in (sizes, known_sizes))
    shown, known_shown = (SYNTAX if found else DATA_ONLY for found in (sizes, known_sizes))
    yield _share("sg_score", _get("syntaxgym", "sg_score"), "SG score")
    name = "sg_score_without_unknown"
    yield _share(name, _get("syntaxgym", name), "SG known words")
    name, of_known = "mean_over_suites_without_unknown", _get("syntaxgym", "mean_without_unknown")
    yield _share(name, of_known, f"known words, {known_mean}", known_shown)
    yield _share("mean_over_suites", _get("syntaxgym", "mean"), mean, shown)
    suites = dict.fromkeys(suite for one in scored for suite in one.suites)
    for one in circuits():
        yield _share(f"circuit, {one}", _get("syntaxgym", "circuits", one), one)
    yield from (Column(f"suite, {one}", _get("syntaxgym", "suites", one)) for one in suites)
    for one in circuits():
        yield Column(f"circuit_without_unknown, {one}", _get("syntaxgym", "circuits_without_unknown", one))
    yield from (Column(f"suite_without_unknown, {one}", _get("syntaxgym", "without_unknown", one)) for one in suites)


def _human(rows: Sequence[RunMetrics]) -> Iterator[Column]:
    """Yield gains in the prediction of reading times, BabyLM's reading scores, and effects in bits by region."""
    for corpus in dict.fromkeys(row.reading.corpus for row in rows if row.reading is not None):
        name, heading = f"reading_delta_nats_per_word, {corpus}", f"delta {corpus.replace('-', ' ')}"
        yield Column(
            name,
            _get("reading", "gain", "delta_nats_per_word", corpus=corpus),
            heading,
            _scaled("{:+.2f}", 1000),
            HUMAN,
        )
        for field in ("low", "high", "perplexity"):
            yield Column(f"reading_{field}, {corpus}", _get("reading", "gain", field, corpus=corpus))
    for field, heading in (("eye_tracking", "BabyLM eyes"), ("self_paced_reading", "BabyLM reading")):
        yield Column(f"babylm_{field}", _get("reading", "babylm", field), heading, _HUNDREDTHS, HUMAN)
    for effect in EFFECTS:
        for region in REGIONS:
            bits = _get("garden_paths", "effects", "bits", effect=effect.name, region=region)
            group = DATA_ONLY if region else HUMAN
            yield Column(f"effect_bits, {effect.name}, {region}", bits, effect.title, _SIGNED, group)


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


def _is_before(one: SeedMean, other: SeedMean, better: str | None) -> bool:
    """Tell whether ``one`` is certainly better than ``other``: an upper bound may be, unless the other is one, too."""
    return not other.is_bound and (one.mean > other.mean if better == "higher" else one.mean < other.mean)


@dataclass(frozen=True)
class ComparisonFrame:
    """Values of all columns, unrounded: F1 in 0..100, accuracies in 0..1; None where a run has none."""

    data: pandas.DataFrame
    columns: Sequence[Column]
    seeds: Sequence[int]  # the number of the first row of the same model, for each row
    comparison: Comparison
    """What the frame is of, with means over seeds and differences, which tables show below the runs."""

    @property
    def legend(self) -> list[str]:
        """What the headings mean, then the notes of the comparison."""
        seeds = " ±: standard deviation over seeds." * (len(set(self.seeds)) < len(self.seeds))
        kinds = {row.gold_trees for row in self.comparison.runs if row.gold_trees is not None}
        gold = f" F1 is against trees of {' or '.join(sorted(kinds))}." if kinds else ""
        shown = {part for one in self.columns for part in (one.name.partition(",")[0], one.group)}
        return [" ".join(text for of, text in LEGEND.items() if of in shown) + gold + seeds, *self.comparison.notes]

    @classmethod
    def of(cls, comparison: Comparison, names: Sequence[str] = ()) -> ComparisonFrame:
        """Make the frame of a comparison, with the columns that some run has a value for.

        With ``names``, only these columns are displayed, in this order. Raises ``InputError`` for a name that is not
        one of the columns.
        """
        import pandas

        rows = comparison.runs
        values = {column: [column.value(row) for row in rows] for column in _columns(rows)}
        columns = [one for one in values if one.group == HIDDEN or any(value is not None for value in values[one])]
        data = pandas.DataFrame({one.name: pandas.Series(values[one], dtype=object) for one in columns})
        if names:
            columns = [columns[0], *(_named(name, columns) for name in dict.fromkeys(names))]
        return cls(data, columns, seed_numbers(rows), comparison)

    def public(self) -> pandas.DataFrame:
        """All columns but hidden ones, unrounded, then means over seeds and differences; NaN where there is none."""
        data = self.data[[column.name for column in self.columns if column.group != HIDDEN]].copy()
        extra = [(one.runs, name, one.metric, getattr(one, name)) for one in self.comparison.seeds for name in SEEDS]
        extra += [
            (one.runs, name, f"{one.metric}, less {one.other}", getattr(one, name))
            for one in self.comparison.differences
            for name in ("difference", "low", "high")
        ]
        for runs, name, of, value in extra:
            data.loc[data["run"].isin(runs), f"{name}, {of}"] = value
        return data

    def to_csv(self) -> str:
        """Write ``public`` as CSV, with ``is_upper_bound`` as 0 or 1, and nothing where there is no value.

        Texts that spreadsheets would compute, such as ``=1+1``, begin with an apostrophe.
        """
        data = self.public()
        text: str = data.astype(object).where(data.notna(), None).map(_plain).to_csv(index=False, lineterminator="\n")
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
        if not self.comparison.differences:
            return []
        rows: dict[tuple[str, ...], dict[str, str]] = {}
        for one in self.comparison.differences:
            text = f"{one.sign} {one.difference:+.1f} [{one.low:+.1f}, {one.high:+.1f}]".strip()
            rows.setdefault(one.runs, {"": one.model})[one.metric] = text
        metrics = {
            column.name: column.heading for column in self.columns if any(column.name in row for row in rows.values())
        }
        how = f"95% interval of a paired bootstrap by {one.unit}, n={one.num_units:,}"
        title = f"Difference from {one.other} [{how}]"
        cells = [[found.get(metric, MISSING) for metric in ("", *metrics)] for found in rows.values()]
        return [Table(headings=["model", *metrics.values()], rows=cells, title=title)]

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
        best = [one.runs for group in groups if len(group) > 1 for one in _leaders(column, group)]
        means = {one.runs[0]: one for group in groups for one in group}
        runs: list[tuple[str, ...]] = [(run,) for run in self.data["run"]]
        cells = [_text(column, value, self._is_bound(column, row)) for row, value in enumerate(self.data[column.name])]
        for model in several:
            one = means.get(self.data["run"][model])
            deviation = f" ± {column.text(one.deviation)}" if one and one.deviation is not None else ""
            runs.append(one.runs if one else ())
            cells.append(f"{_text(column, one.mean, one.is_bound)}{deviation}" if one else "")
        return [Bold(cell) if of in best else cell for of, cell in zip(runs, cells, strict=True)]

    def _is_bound(self, column: Column, row: int) -> bool:
        return bool(column.upper_bound_flag in self.data and self.data[column.upper_bound_flag][row])

    def standings(self, column: Column) -> list[list[SeedMean]]:
        """Order models by a metric, the best first, in groups of models whose values compare.

        A model has one value for all of its seeds; models that lack the metric are left out.
        """
        groups: dict[Hashable, list[SeedMean]] = {}
        for model in dict.fromkeys(self.seeds):
            rows = [row for row, seed in enumerate(self.seeds) if seed == model]
            values = [value for row in rows if (value := self.data[column.name][row]) is not None]
            if len(values) == len(rows):
                key = tuple(
                    self.data[name][model] if name in self.data else None for name in column.comparable_if_equal
                )
                varied = values if math.isfinite(sum(values)) else values[:1]  # of infinite ones there is no deviation
                standing = SeedMean(
                    model=self.data["run" if len(rows) == 1 else "system"][model],
                    runs=(*self.data["run"][rows],),
                    metric=column.name,
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
        seeds, found = list[SeedMean](), list[Difference | None]()
        order = list(self.data["run"])
        for column in self.shown():
            for group in self.standings(column) if column.better else ():
                seeds += [one for one in group if one.deviation is not None]
                first = [one for one in group if order[0] in one.runs]
                others = sorted((one for one in group if one not in first), key=lambda one: order.index(one.runs[0]))
                found += [self._difference(column, one, *first) for one in others if first]
        differences = tuple(one for one in found if one is not None)
        return replace(self.comparison, seeds=tuple(seeds), differences=differences)

    def _difference(self, column: Column, one: SeedMean, other: SeedMean) -> Difference | None:
        """The difference of two models, ``one`` less ``other``, with its interval.

        None if bounds leave open which of them is better, and if sums by unit are not known.
        """
        for bound, rival in ((one, other), (other, one)):
            if bound.is_bound and not _is_before(bound, rival, column.better):
                return None
        units = [[row.units for row in self.comparison.runs if row.name in each.runs] for each in (one, other)]
        sums = [[of for each in own if each and (of := each.of(column.name)) is not None] for own in units]
        if [*map(len, sums)] != [*map(len, units)] or len({of.shape for each in sums for of in each}) > 1:
            return None
        low, high = paired_interval(*sums)
        return Difference(
            model=one.model,
            runs=one.runs,
            other=other.model,
            metric=column.name,
            sign="≤" if one.is_bound else "≥" if other.is_bound else "",
            difference=one.mean - other.mean,
            low=low,
            high=high,
            unit=units[0][0].unit,  # type: ignore[union-attr]
            num_units=len(sums[0][0]),
        )


def _leaders(column: Column, group: Sequence[SeedMean]) -> list[SeedMean]:
    """The best of models whose values compare: several if they are equal, none if bounds leave open which it is."""
    first = [one for one in group if not any(_is_before(other, one, column.better) for other in group)]
    return first if len(first) == 1 or not any(one.is_bound for one in first) else []


def _text(column: Column, value: Any, is_bound: bool) -> str:
    """A value as it is displayed; ``≤`` marks an upper bound."""
    return MISSING if value is None else f"{'≤ ' * is_bound}{column.text(value)}"


def _named(name: str, columns: Sequence[Column]) -> Column:
    """Find a column by its name or heading; a column that is otherwise only in files is displayed under its name.

    Raises ``InputError`` if there is none.
    """
    known = [one for one in columns if one.group not in (NAMES, HIDDEN)]
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
