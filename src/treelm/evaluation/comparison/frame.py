"""The data frame of a comparison: a row for each run, a column for each metric that some run has, and its tables."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Any, NamedTuple

from treelm.evaluation.comparison.metrics import Comparison, RunMetrics, SyntaxGymMetrics
from treelm.evaluation.human.sap import EFFECTS, REGIONS
from treelm.evaluation.intervals import interval
from treelm.evaluation.syntaxgym.results import circuits
from treelm.evaluation.tables import MISSING, Bold, Column, Table

if TYPE_CHECKING:
    import pandas

NAMES, METRICS, SPEED, SYNTAX, HUMAN = "names", "figures", "sizes and speed", "syntax tests", "people"
DATA_ONLY, HIDDEN = "data only", "hidden"
"""Groups of columns that are in no table for people, and not even in files: rows must share their values to compare."""
Values = Iterable[tuple[Column | str, Any]]
"""Columns with the value that a run has in each (None: none); of columns that are data only, the name alone."""
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
_TENTHS, _HUNDREDTHS, _SIGNED, _WHOLE = "{:.1f}".format, "{:.2f}".format, "{:+.2f}".format, "{:,.0f}".format


def _percent(value: float) -> str:
    return f"{100 * value:.1f}"


def _minutes(seconds: float) -> str:
    return "{}:{:02d}".format(*divmod(round(seconds), 60))


def _values(row: RunMetrics, rows: Sequence[RunMetrics]) -> list[Values]:
    """What a run has in each column, in the order of the columns: the parts are those of rows one after the other."""
    of_system = SPEED if any(one.system != one.name for one in rows) else DATA_ONLY
    parameters = Column("parameters", "parameters", lambda value: f"{value / 1e6:.2f}M", SPEED)
    gold, identity = Column("gold_trees", "gold trees", group=METRICS), ("vocabulary", "text", "needs_trees")
    return [
        [
            (Column("run", "run", group=NAMES), row.name),
            (Column("system", "system", group=of_system), row.system),
            (parameters, row.num_parameters or None),
            (Column("training_seconds", "training", _minutes, SPEED), row.training_seconds),
        ],
        _perplexities(row),
        [
            (_f1(f"labeled_f1, {one.protocol}", f"labelled F1 {one.protocol.partition(' (')[0]}"), one.corpus_f1)
            for one in row.labeled_f1
        ],
        _unlabelled_f1(row),
        [
            (gold, row.gold_trees),
            *(
                (Column(name := f"{kind}_words_per_second", f"words/s {kind}", _WHOLE, SPEED), getattr(row, name))
                for kind in ("training", "scoring")
            ),
        ],
        _syntaxgym(row, [one.syntaxgym for one in rows if one.syntaxgym is not None]),
        _pairs(row, dict.fromkeys(one.file for each in rows for one in each.pairs)),
        *_human(row),
        [(Column(name, group=HIDDEN), getattr(row, name)) for name in identity],
    ]


def _perplexities(row: RunMetrics) -> Values:
    """The perplexity that compares, with its bound, then others by name: of streams, per character."""
    among, main = ("vocabulary", "text", "needs_trees"), row.perplexity

    def column(name: str, heading: str) -> Column:
        return Column(name, heading, _TENTHS, METRICS, better="lower", among=among, bound="is_upper_bound")

    yield column("perplexity", "perplexity"), main and main.value
    yield "is_upper_bound", main and main.is_upper_bound
    for one in row.perplexities:
        if one != main:
            heading = one.name.replace(" per word, with end of sentence", "").replace(", in a stream", " in a stream")
            yield column(one.name, heading), one.value


def _f1(name: str, heading: str) -> Column:
    return Column(name, heading, _TENTHS, METRICS, better="higher", among=("gold_trees", "text"))


def _unlabelled_f1(row: RunMetrics) -> Values:
    """For each protocol: F1 of the corpus, of sentences, of the best trivial trees, and its bound."""
    for one in row.unlabeled_f1:
        name = one.protocol
        yield _f1(f"unlabeled_f1, {name}", f"UF1 {name}"), one.corpus_f1
        yield f"unlabeled_f1_sentence, {name}", one.sentence_f1
        yield Column(f"trivial_f1, {name}", "trivial", _TENTHS, METRICS), row.trivial_f1(name)
        yield Column(f"binary_upper_bound_f1, {name}", "bound", _TENTHS, METRICS), row.upper_bound_f1(name)


def _share(name: str, heading: str, *, is_shown: bool = True, **options: Any) -> Column:
    return Column(name, heading, _percent, SYNTAX if is_shown else DATA_ONLY, better="higher", **options)


def _syntaxgym(row: RunMetrics, scored: Sequence[SyntaxGymMetrics]) -> Values:
    """The SG score, or the mean over what was scored where some suites were not, and the same over items without
    unknown words, a mean where not every suite has such items; then circuits, and suites.
    """
    known = [one for one in scored if one.without_unknown]
    sizes = {len(one.suites) for one in scored if one.sg_score is None}
    known_sizes = {len(one.without_unknown) for one in known if one.sg_score_without_unknown is None}
    means = [f"mean of {'/'.join(map(str, sorted(found)))} suites" for found in (sizes, known_sizes)]
    whole = _share("mean_over_suites", means[0], is_shown=bool(sizes))
    name, heading = "mean_over_suites_without_unknown", f"known words, {means[1]}"
    of_known = _share(name, heading, is_shown=bool(known_sizes), is_wide=True)
    known_score = _share("sg_score_without_unknown", "SG known words", is_wide=True)
    names, own = dict.fromkeys(suite for one in scored for suite in one.suites), row.syntaxgym
    return [
        (_share("sg_score", "SG score"), own and own.sg_score),
        (known_score, own and own.sg_score_without_unknown),
        (of_known, own and own.mean_without_unknown),
        (whole, own and own.mean),
        *((_share(f"circuit, {one}", _SHORT.get(one, one)), own and own.circuits.get(one)) for one in circuits()),
        *((f"suite, {suite}", own and own.suites.get(suite)) for suite in names),
        *((f"circuit_without_unknown, {one}", own and own.circuits_without_unknown.get(one)) for one in circuits()),
        *((f"suite_without_unknown, {suite}", own and own.without_unknown.get(suite)) for suite in names),
    ]


def _pairs(row: RunMetrics, files: Iterable[str]) -> Values:
    shorts = [file.partition(".")[0] for file in files]
    for one in row.pairs:
        short, number = one.file.partition(".")[0], f"num_pairs, {one.file}"
        heading = one.file if shorts.count(short) > 1 else short
        yield _share(f"minimal_pairs, {one.file}", heading, among=(number,)), one.accuracy
        yield Column(number, group=HIDDEN), one.num_pairs


def _human(row: RunMetrics) -> list[Values]:
    """What surprisals add to reading times, BabyLM's reading scores, and effects at the critical word and after it."""
    reading: list[tuple[Column | str, Any]] = []
    if row.reading is not None:
        corpus, gain = row.reading.corpus, row.reading.gain
        delta = Column(
            f"reading_delta_nats_per_word, {corpus}",
            f"delta {corpus.replace('-', ' ')}",
            lambda value: f"{1000 * value:+.2f}",
            HUMAN,
        )
        reading.append((delta, gain.delta_nats_per_word))
        reading += [(f"reading_{field}, {corpus}", getattr(gain, field)) for field in ("low", "high", "perplexity")]
    score = row.reading and row.reading.babylm
    effects: list[tuple[Column | str, Any]] = [
        (Column("babylm_eye_tracking", "BabyLM eyes", _HUNDREDTHS, HUMAN), score and score.eye_tracking),
        (Column("babylm_self_paced_reading", "BabyLM reading", _HUNDREDTHS, HUMAN), score and score.self_paced_reading),
    ]
    for effect in EFFECTS:
        for region in REGIONS:
            name, heading = f"effect_bits, {effect.name}, {region}", _SHORT.get(effect.title, effect.title)
            column = Column(name, heading, _SIGNED, HUMAN) if region == REGIONS[0] else name
            effects.append((column, row.garden_paths and row.garden_paths.bits(effect.name, region)))
    return [reading, effects]


def seed_numbers(rows: Sequence[RunMetrics]) -> list[int]:
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
        for parts in zip(*(_values(row, rows) for row in rows), strict=True):
            for part, record in zip(parts, records, strict=True):
                for given, value in part:
                    column = Column(given, group=DATA_ONLY) if isinstance(given, str) else given
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
        several = [model for model in dict.fromkeys(self.seeds) if self.seeds.count(model) > 1]
        several = several if any(column.better for column in columns) else []
        names = [*self.data["run"]]
        names += [f"{self.data['system'][model]}, mean of {self.seeds.count(model)} seeds" for model in several]
        rows = zip(names, *(self._cells(column, several) for column in columns), strict=True)
        return Table(headings=["run", *(column.heading for column in columns)], rows=list(rows), **options)

    def _cells(self, column: Column, several: Sequence[int]) -> list[str]:
        """The cells of runs, and of the means of models of several seeds: empty of what is no metric."""
        groups = self.standings(column) if column.better else []
        best = [one.rows for group in groups if len(group) > 1 for one in group if one.mean == group[0].mean]
        cells = [self.text(column, row) for row in range(len(self.data))]
        cells = [Bold(cell) if [row] in best else cell for row, cell in enumerate(cells)]
        means = {one.rows[0]: one for group in groups for one in group}
        for model in several:
            text = self.in_words(column, means[model]) if model in means else ""
            cells.append(Bold(text) if text and means[model].rows in best else text)
        return cells

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
