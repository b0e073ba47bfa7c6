"""The data frame of a comparison: a row for each run, a column for each metric that some run has, and its tables."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Any, NamedTuple

from treelm.evaluation.comparison.metrics import Comparison, RunMetrics
from treelm.evaluation.human.sap import EFFECTS, REGIONS
from treelm.evaluation.intervals import interval
from treelm.evaluation.syntaxgym.results import circuits
from treelm.evaluation.tables import MISSING, Bold, Column, Table

if TYPE_CHECKING:
    import pandas

Rows = Sequence[RunMetrics]
Values = Iterator[tuple[Column, Any]]
"""Columns with the value that a run has in each; None: none."""
NAMES, METRICS, SPEED, SYNTAX, HUMAN = "names", "figures", "sizes and speed", "syntax tests", "people"
DATA_ONLY, HIDDEN = "data only", "hidden"
"""Groups of columns that are in no table for people, and not even in files: rows must share their values to compare."""
LEGEND = (
    "perplexity: per word, each sentence by itself, ends included; ≤: an upper bound. labelled F1: EVALB with "
    "COLLINS.prm. UF1: unlabelled, corpus level, by the protocol named; trivial: the best of left-, right-branching, "
    "balanced and random trees against the same gold trees; bound: the most that binary trees can. Syntax tests in "
    "percent. delta: what surprisals add to the prediction of reading times, 10^-3 nats a word; garden paths and the "
    "like: bits at the critical word, hard less easy sentence."
)
"""The headings of the columns, in words."""
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
_TENTHS, _HUNDREDTHS, _SIGNED = "{:.1f}".format, "{:.2f}".format, "{:+.2f}".format


def _percent(value: float) -> str:
    return f"{100 * value:.1f}"


def _minutes(seconds: float) -> str:
    return "{}:{:02d}".format(*divmod(round(seconds), 60))


def _names(row: RunMetrics, rows: Rows) -> Values:
    yield Column(name="run", heading="run", group=NAMES), row.name
    group = SPEED if any(one.system != one.name for one in rows) else DATA_ONLY
    yield Column(name="system", heading="system", group=group), row.system


def _sizes(row: RunMetrics, rows: Rows) -> Values:
    millions = Column(name="parameters", heading="parameters", text=lambda value: f"{value / 1e6:.2f}M", group=SPEED)
    yield millions, row.num_parameters or None
    yield Column(name="training_seconds", heading="training", text=_minutes, group=SPEED), row.training_seconds


def _perplexities(row: RunMetrics, rows: Rows) -> Values:
    """The perplexity that compares, with its bound, then others by name: of streams, per character."""
    options: dict[str, Any] = {
        "text": _TENTHS,
        "group": METRICS,
        "better": "lower",
        "among": ("vocabulary", "text", "needs_trees"),
        "bound": "is_upper_bound",
    }
    main = row.perplexity
    yield Column(name="perplexity", heading="perplexity", **options), main and main.value
    yield Column(name="is_upper_bound", group=DATA_ONLY), main and main.is_upper_bound
    for one in row.perplexities:
        if one != main:
            heading = one.name.replace(" per word, with end of sentence", "").replace(", in a stream", " in a stream")
            yield Column(name=one.name, heading=heading, **options), one.value


def _labelled_f1(row: RunMetrics, rows: Rows) -> Values:
    for one in row.labeled_f1:
        heading = f"labelled F1 {one.protocol.partition(' (')[0]}"
        yield _f1(f"labeled_f1, {one.protocol}", heading), one.corpus_f1


def _f1(name: str, heading: str) -> Column:
    among = ("gold_trees", "text")
    return Column(name=name, heading=heading, text=_TENTHS, group=METRICS, better="higher", among=among)


def _unlabelled_f1(row: RunMetrics, rows: Rows) -> Values:
    """For each protocol: F1 of the corpus, of sentences (data only), of the best trivial trees, and its bound."""
    for one in row.unlabeled_f1:
        name = one.protocol
        yield _f1(f"unlabeled_f1, {name}", f"UF1 {name}"), one.corpus_f1
        yield Column(name=f"unlabeled_f1_sentence, {name}", group=DATA_ONLY), one.sentence_f1
        trivial = Column(name=f"trivial_f1, {name}", heading="trivial", text=_TENTHS, group=METRICS)
        yield trivial, row.trivial_f1(name)
        bound = Column(name=f"binary_upper_bound_f1, {name}", heading="bound", text=_TENTHS, group=METRICS)
        yield bound, row.upper_bound_f1(name)


def _gold_trees(row: RunMetrics, rows: Rows) -> Values:
    yield Column(name="gold_trees", heading="gold trees", group=METRICS), row.gold_trees


def _speeds(row: RunMetrics, rows: Rows) -> Values:
    for kind in ("training", "scoring"):
        name = f"{kind}_words_per_second"
        yield Column(name=name, heading=f"words/s {kind}", text="{:,.0f}".format, group=SPEED), getattr(row, name)


def _syntaxgym(row: RunMetrics, rows: Rows) -> Values:
    """The SG score, or the mean over what was scored where some suites were not, and the same over items without
    unknown words, a mean where not every suite has such items; then the circuits.
    """
    scored = [one.syntaxgym for one in rows if one.syntaxgym is not None]
    known = [one for one in scored if one.without_unknown]
    sizes = {len(one.suites) for one in scored if one.sg_score is None}
    known_sizes = {len(one.without_unknown) for one in known if one.sg_score_without_unknown is None}
    own = row.syntaxgym
    score = _share("sg_score", "SG score", SYNTAX)
    yield score, own and own.sg_score
    score = _share("sg_score_without_unknown", "SG known words", SYNTAX, is_wide=True)
    yield score, own and own.sg_score_without_unknown
    heading = f"known words, {_mean_over(known_sizes)}"
    group = SYNTAX if known_sizes else DATA_ONLY
    mean = _share("mean_over_suites_without_unknown", heading, group, is_wide=True)
    yield mean, own and own.mean_without_unknown
    yield _share("mean_over_suites", _mean_over(sizes), SYNTAX if sizes else DATA_ONLY), own and own.mean
    for circuit in circuits():
        heading = _SHORT.get(circuit, circuit)
        yield _share(f"circuit, {circuit}", heading, SYNTAX), own and own.circuits.get(circuit)


def _share(name: str, heading: str, group: str, **options: Any) -> Column:
    return Column(name=name, heading=heading, text=_percent, group=group, better="higher", **options)


def _mean_over(sizes: set[int]) -> str:
    return f"mean of {'/'.join(map(str, sorted(sizes)))} suites"


def _suites(row: RunMetrics, rows: Rows) -> Values:
    for suite, accuracy in (row.syntaxgym.suites if row.syntaxgym else {}).items():
        yield Column(name=f"suite, {suite}", group=DATA_ONLY), accuracy


def _suites_of_known_words(row: RunMetrics, rows: Rows) -> Values:
    """Every circuit and suite over items without unknown words."""
    own = row.syntaxgym
    for circuit in circuits():
        accuracy = own and own.circuits_without_unknown.get(circuit)
        yield Column(name=f"circuit_without_unknown, {circuit}", group=DATA_ONLY), accuracy
    for suite in dict.fromkeys(suite for one in rows if one.syntaxgym for suite in one.syntaxgym.suites):
        accuracy = own and own.without_unknown.get(suite)
        yield Column(name=f"suite_without_unknown, {suite}", group=DATA_ONLY), accuracy


def _pairs(row: RunMetrics, rows: Rows) -> Values:
    shorts = [file.partition(".")[0] for file in dict.fromkeys(one.file for each in rows for one in each.pairs)]
    for one in row.pairs:
        short, number = one.file.partition(".")[0], f"num_pairs, {one.file}"
        heading = one.file if shorts.count(short) > 1 else short
        yield _share(f"minimal_pairs, {one.file}", heading, SYNTAX, among=(number,)), one.accuracy
        yield Column(name=number, group=HIDDEN), one.num_pairs


def _reading(row: RunMetrics, rows: Rows) -> Values:
    """For each corpus: what surprisals add, its interval and the perplexity on its words (data only)."""
    if row.reading is None:
        return
    corpus, gain = row.reading.corpus, row.reading.gain
    heading = f"delta {corpus.replace('-', ' ')}"
    name = f"reading_delta_nats_per_word, {corpus}"
    yield (
        Column(name=name, heading=heading, text=lambda value: f"{1000 * value:+.2f}", group=HUMAN),
        gain.delta_nats_per_word,
    )
    for field in ("low", "high", "perplexity"):
        yield Column(name=f"reading_{field}, {corpus}", group=DATA_ONLY), getattr(gain, field)


def _babylm(row: RunMetrics, rows: Rows) -> Values:
    """Both reading scores of the BabyLM challenge."""
    score = row.reading and row.reading.babylm
    for field, heading in (("eye_tracking", "BabyLM eyes"), ("self_paced_reading", "BabyLM reading")):
        value = score and getattr(score, field)
        yield Column(name=f"babylm_{field}", heading=heading, text=_HUNDREDTHS, group=HUMAN), value


def _garden_paths(row: RunMetrics, rows: Rows) -> Values:
    """The effects at the critical word; those at the words after it are data only."""
    for effect in EFFECTS:
        for region in REGIONS:
            name, heading = f"effect_bits, {effect.name}, {region}", _SHORT.get(effect.title, effect.title)
            group = HUMAN if region == REGIONS[0] else DATA_ONLY
            bits = row.garden_paths and row.garden_paths.bits(effect.name, region)
            yield Column(name=name, heading=heading, text=_SIGNED, group=group), bits


def _identity(row: RunMetrics, rows: Rows) -> Values:
    for name in ("vocabulary", "text", "needs_trees"):
        yield Column(name=name, group=HIDDEN), getattr(row, name)


_SECTIONS: tuple[Callable[[RunMetrics, Rows], Values], ...] = (
    _names,
    _sizes,
    _perplexities,
    _labelled_f1,
    _unlabelled_f1,
    _gold_trees,
    _speeds,
    _syntaxgym,
    _suites,
    _suites_of_known_words,
    _pairs,
    _reading,
    _babylm,
    _garden_paths,
    _identity,
)
"""What gives the columns, in their order."""


def seed_numbers(rows: Rows) -> list[int]:
    """Give a number to each row that rows share which differ by their seed alone: that of the first of them.

    Rows of other texts, searches, vocabularies or training data, and two rows of one model, are not of one group.
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


class Standing(NamedTuple):
    """A model's place by a metric."""

    rows: Sequence[int]
    """Numbers of its rows: its seeds."""
    mean: float
    spread: float | None
    """Half of the interval of the mean over seeds; None of one alone."""


@dataclass(frozen=True)
class ComparisonFrame:
    """Values of all columns, unrounded: F1 in 0..100, accuracies in 0..1; None where a run has none."""

    data: pandas.DataFrame
    columns: Sequence[Column]
    seeds: Sequence[int]
    """The number of the first row of the same model, for each row."""
    legend: Sequence[str]
    """What the headings mean, then the notes of the comparison."""

    @classmethod
    def of(cls, comparison: Comparison) -> ComparisonFrame:
        """Gather the columns that some run has a value for."""
        import pandas

        rows = comparison.runs
        columns: dict[str, Column] = {}
        records: list[dict[str, Any]] = [{} for _ in rows]
        for section in _SECTIONS:
            for row, record in zip(rows, records, strict=True):
                for column, value in section(row, rows):
                    columns.setdefault(column.name, column)
                    record.setdefault(column.name, value)
        columns = {
            name: column
            for name, column in columns.items()
            if column.group == HIDDEN or any(record.get(name) is not None for record in records)
        }
        values = [[record.get(name) for name in columns] for record in records]
        data = pandas.DataFrame(values, columns=list(columns), dtype=object)
        return cls(data, [*columns.values()], seed_numbers(rows), (LEGEND, *comparison.notes))

    def to_csv(self) -> str:
        """All columns, those for people and others, unrounded; empty where there is no value.

        ``is_upper_bound`` (0 or 1) is about every perplexity of the row. A text that begins as a formula would, such as
        the name of a run ``=1+1``, has an apostrophe before it: spreadsheets would compute it.
        """
        names = [column.name for column in self.columns if column.group != HIDDEN]
        text: str = self.data[names].map(_plain).to_csv(index=False, lineterminator="\n")
        return text

    def to_markdown(self) -> str:
        """A table of GitHub's Markdown, the legend and the notes below it."""
        legend, *notes = self.legend
        listed = "".join(f"* {note}\n" for note in notes)
        return f"{self.table().to_markdown()}\n{legend}\n\n{listed}"

    def to_latex(self) -> str:
        """A tabular with the rules of booktabs; legend and notes are comments below it."""
        comments = "".join(f"% {line}\n" for note in self.legend for line in note.splitlines())
        return f"% \\usepackage{{booktabs}}\n{self.table().to_latex()}{comments}"

    def shown(self, group: str = "") -> list[Column]:
        """The columns for people, or those of them in a group, without names."""
        shown = [column for column in self.columns if column.group not in (NAMES, DATA_ONLY, HIDDEN)]
        return [column for column in shown if not group or column.group == group]

    def table(self, columns: Sequence[Column] | None = None, **options: Any) -> Table:
        """A table of the runs in columns, by default all for people, then the means of models of several seeds.

        What is best among models that compare, of two or more, is bold.
        """
        columns = self.shown() if columns is None else columns
        best = {column.name: self._best(column) for column in columns}
        rows = [
            [name, *(self._cell(column, number, best[column.name]) for column in columns)]
            for number, name in enumerate(self.data["run"])
        ]
        for model in dict.fromkeys(self.seeds) if any(column.better for column in columns) else ():
            count = self.seeds.count(model)
            if count > 1:
                cells = (self._mean(column, model, best[column.name]) for column in columns)
                rows.append([f"{self.data['system'][model]}, mean of {count} seeds", *cells])
        return Table(headings=["run", *(column.heading for column in columns)], rows=rows, **options)

    def text(self, column: Column, row: int, value: float | None = None) -> str:
        """Write the value of a row, or another of the same kind, for people; ``≤`` marks an upper bound."""
        value = self.data[column.name][row] if value is None else value
        if value is None:
            return MISSING
        is_bound = column.bound in self.data and self.data[column.bound][row]
        return f"{'≤ ' if is_bound else ''}{column.text(value)}"

    def standings(self, column: Column) -> list[list[Standing]]:
        """Models by a metric, the best first, in groups whose values compare; without models that lack it."""
        groups: dict[Hashable, list[Standing]] = {}
        for model in dict.fromkeys(self.seeds):
            rows = [row for row, seed in enumerate(self.seeds) if seed == model]
            values = [value for row in rows if (value := self.data[column.name][row]) is not None]
            if len(values) == len(rows):
                key = tuple(self.data[name][model] if name in self.data else None for name in column.among)
                groups.setdefault(key, []).append(Standing(rows, fmean(values), interval(values)))
        is_high = column.better == "higher"
        return [sorted(group, key=lambda one: one.mean, reverse=is_high) for group in groups.values()]

    def _best(self, column: Column) -> list[Standing]:
        """The best models by a metric."""
        groups = self.standings(column) if column.better else []
        return [one for group in groups if len(group) > 1 for one in group if one.mean == group[0].mean]

    def _cell(self, column: Column, row: int, best: Sequence[Standing]) -> str:
        text = self.text(column, row)
        return Bold(text) if any(one.rows == [row] for one in best) else text

    def _mean(self, column: Column, model: int, best: Sequence[Standing]) -> str:
        """The mean of a metric over seeds with half of its interval; empty of what is no metric."""
        found = (one for group in self.standings(column) for one in group) if column.better else ()
        for one in found:
            if one.rows[0] == model:
                text = self.in_words(column, one)
                return Bold(text) if one in best else text
        return ""

    def in_words(self, column: Column, one: Standing) -> str:
        """The value of a model, or the mean over its seeds with half of its interval."""
        bound = next((row for row in one.rows if self.text(column, row).startswith("≤")), one.rows[0])
        spread = "" if one.spread is None else f" ± {column.text(one.spread)}"
        return f"{self.text(column, bound, one.mean)}{spread}"


def _plain(value: Any) -> Any:
    if value is None:
        return ""
    if isinstance(value, str) and value.startswith(("=", "+", "-", "@")):
        return f"'{value}"
    return int(value) if isinstance(value, bool) else value
