"""Tables in the terminal: comparisons, test suites, minimal pairs, statistics of corpora."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from rich.text import Text

from treelm.corpora.consoles import OutputConsole
from treelm.corpora.corpus import PreparedCorpus
from treelm.corpora.statistics import CorpusStatistics, Distribution, corpus_statistics
from treelm.evaluation.comparison.metrics import Comparison
from treelm.evaluation.comparison.tables import LEGEND, Column, shown_columns
from treelm.evaluation.syntaxgym.results import Reference, circuit_accuracies, overall_score
from treelm.figures.grid import Grid, GridColumn, grid_of
from treelm.models.structures import UsedRule

if TYPE_CHECKING:
    from treelm.evaluation.minimal_pairs import MinimalPairResult, PairCounts
    from treelm.evaluation.structure import StructureResult, TreeAnalysis
    from treelm.evaluation.syntaxgym.scoring import SuiteResult

MISSING = "-"
_WIDEST = 10_000  # cells of a line
_TITLES: dict[Literal["figures", "sizes and speed", "syntax tests", "people"], str] = {
    "figures": "figures",
    "sizes and speed": "sizes and speed",
    "syntax tests": "tests of syntax: correct in percent",
    "people": "people: reading times and garden paths",
}


Printed = str | Grid
"""What stands below each other in the terminal: tables and lines of text."""


def print_table(*parts: Printed, wide: bool = False) -> None:
    """Print tables and lines on standard output, no wider than the terminal unless they shall be ``wide``."""
    console = OutputConsole()
    tables = OutputConsole(width=_WIDEST) if wide else console  # columns that a console has no room for are left out
    for part in parts:
        if isinstance(part, str):
            console.print(Text(part))
            continue
        for number, (title, table) in enumerate(part.parts(None if wide else console.width)):
            if number:
                console.print()
            if title:
                console.print(Text(title, style="table.title"))
            tables.print(table, no_wrap=True)
        if part.caption:
            console.print(Text(part.caption, style="table.caption"))
        console.print()


def comparison_tables(comparison: Comparison) -> list[Printed]:
    """One row a run in a table for each group of columns, tests of syntax last, and the notes below."""
    columns = [column for column in shown_columns(comparison) if not column.is_wide]
    groups = {column.group for column in columns}
    tables: list[Printed] = [
        _group_table(comparison, columns, group, title) for group, title in _TITLES.items() if group in groups
    ]
    return [*tables, f"ppl: perplexity. {LEGEND}", *(f"note: {note}" for note in comparison.notes)]


def _group_table(comparison: Comparison, columns: Sequence[Column], group: str, title: str) -> Grid:
    def column(one: Column) -> GridColumn:
        return GridColumn(
            heading=one.heading.replace("perplexity", "ppl"),
            cells=[one.cell(row) for row in comparison.runs],
            justify="left" if one.group == "names" else "right",
        )

    return Grid(
        labels=[column(one) for one in columns if one.group == "names"],
        columns=[column(one) for one in columns if one.group == group],
        title=title,
    )


def suite_table(
    results: Mapping[str, Sequence[SuiteResult]],
    references: Sequence[Reference] = (),
    *,
    title: str = "",
    details: bool = False,
) -> Grid:
    """One row a prediction of a suite: accuracy in percent of each model, and beside them published ones.

    Of a single model also over items without unknown words where they count; with ``details`` of each, and how many
    items there are and have such words.
    """
    known = len(results) == 1 or details
    names = ("items", "unknown", "accuracy", "without unknown")
    shown = [name for name in names if name == "accuracy" or (known if name == names[-1] else details)]
    several = len(results) > 1
    headings = [f"{model} {name}" if several else name for model in results for name in shown]
    if several and shown == ["accuracy"]:
        headings = list(results)
    rows = []
    for own in zip(*results.values(), strict=True):
        beside = [_percent(one.accuracies.get(own[0].suite)) for one in references]
        for number in range(len(own[0].formulas)):
            label = own[0].suite if number == 0 else f"  prediction {number + 1}"
            cells = [dict(zip(names, _prediction_cells(result, number), strict=True)) for result in own]
            rows.append(
                [
                    label,
                    *(one[name] for one in cells for name in shown),
                    *(beside if number == 0 else [MISSING] * len(beside)),
                ]
            )
    return grid_of("suite", [*headings, *(one.name for one in references)], rows, title=title)


def _prediction_cells(result: SuiteResult, prediction: int) -> tuple[str, ...]:
    unknown = sum(one.has_unknown for one in result.outcomes if one.prediction == prediction)
    shares = (result.accuracy(prediction), result.accuracy_without_unknown(prediction))
    return (str(result.num_items), str(unknown), *map(_percent, shares))


def circuit_table(results: Mapping[str, Sequence[SuiteResult]], references: Sequence[Reference] = ()) -> Grid:
    """Mean accuracy of the circuits that are complete, and the SG score over all 31 suites, beside published models.

    Of a single model a second column has the same over items without unknown words, where every suite has such items.
    """
    from treelm.evaluation.syntaxgym.results import accuracies, accuracies_without_unknown

    by_model: list[tuple[str, Mapping[str, float]]] = [(name, accuracies(own)) for name, own in results.items()]
    if len(by_model) == 1:
        (own,) = results.values()
        by_model = [("accuracy", by_model[0][1]), ("without unknown", accuracies_without_unknown(own))]
    by_model += [(one.name, one.accuracies) for one in references]
    by_circuit = [circuit_accuracies(values) for _, values in by_model]
    rows = [[circuit, *(_percent(one.get(circuit)) for one in by_circuit)] for circuit in by_circuit[0]]
    rows.append(["SG score (31 suites)", *(_percent(overall_score(values)) for _, values in by_model)])
    return grid_of("mean over suites", [name for name, _ in by_model], rows, title="circuits")


def pair_table(results: Mapping[str, MinimalPairResult], *, title: str = "") -> Grid:
    """One row a group of minimal pairs, all groupings one under the other, and the whole at the end."""
    several = len(results) > 1
    first = next(iter(results.values()))
    rows, ends = [], []
    for grouping, members in first.groups.items():
        for group, counts in members.items():
            own = [one.groups[grouping][group] for one in results.values()]
            rows.append([f"{grouping}: {group}", str(counts.total), *_pair_cells(own, ties=not several)])
        ends.append(len(rows) - 1)
    for label, overall in (
        ("all", [one.overall for one in results.values()]),
        ("all without unknown words", [one.without_unknown for one in results.values()]),
    ):
        totals = {str(one.total) for one in overall}
        rows.append([label, totals.pop() if len(totals) == 1 else MISSING, *_pair_cells(overall, ties=not several)])
    headings = ["pairs", *(results if several else ("ties", "accuracy"))]
    said = [
        "; ".join([*one.notes, *["log probabilities are lower bounds"] * one.is_lower_bound])
        for one in results.values()
    ]
    about = [f"{name}: {one}" for name, one in zip(results, said, strict=True) if one] if several else said
    caption = "; ".join(filter(None, [*about, "a tie is not correct"]))
    return grid_of("group", headings, rows, title=title, caption=caption, ends=ends)


def _pair_cells(counts: Sequence[PairCounts], *, ties: bool) -> list[str]:
    return [
        cell
        for one in counts
        for cell in (*([str(one.ties)] if ties else []), _percent(one.accuracy if one.total else None))
    ]


def structure_tables(result: StructureResult) -> list[Printed]:
    """What trees have learned, overall, by label, length and height; a row for each system or kind of trivial trees."""
    from treelm.evaluation.structure import HEIGHTS, SENTENCE_LENGTHS, SPAN_LENGTHS, class_names

    overall: Mapping[str, Callable[[TreeAnalysis], object]] = {
        "sentence F1": lambda row: row.sentence_f1,
        "corpus F1": lambda row: row.corpus_f1,
        "seeds agree": lambda row: row.agreement,
        "left": lambda row: row.left_branching,
        "right": lambda row: row.right_branching,
        "Spearman": lambda row: row.height_correlation and f"{row.height_correlation.mean:.2f}",
        "labels": lambda row: row.many_to_one,
    }
    labels = list(result.labels)[:_MOST_LABELS]
    by_sentence = _means("f1_by_sentence_length", class_names(SENTENCE_LENGTHS))
    return [
        *_structure_table(result, f"{result.protocol.name}, {result.num_sentences} sentences", overall),
        *_structure_table(result, "recall by label", _means("recall_by_label", labels)),
        *_structure_table(result, "F1 by words of a span", _means("f1_by_span_length", class_names(SPAN_LENGTHS))),
        *_structure_table(result, "F1 by words of a sentence", by_sentence),
        *_structure_table(result, "distance by height", _means("distance_by_height", class_names(HEIGHTS))),
        *(_symbol_table(row) for row in result.rows if row.symbols),
        STRUCTURE_LEGEND,
        f"note: {result.protocol.description}",
    ]


_MOST_LABELS = 8
STRUCTURE_LEGEND = (
    "Means over seeds; the first table has deviations, too. F1 is unlabelled; by length it is of all spans together. "
    "seeds agree: corpus F1 of each pair. left, right: against left- and right-branching trees. Spearman: of distances "
    "and heights of the gold tree, mean of sentences. distance by height: in standard deviations above its sentence's "
    "mean, where the gold tree is so high. labels: constituents found whose gold label is the one that their own "
    "label has most often."
)
_MOST_SYMBOLS, _MOST_MEANINGS, _WIDEST_BAR = 12, 3, 20


def _structure_table(
    result: StructureResult, title: str, columns: Mapping[str, Callable[[TreeAnalysis], object]]
) -> list[Grid]:
    """Rows and columns that have a value; nothing if there are none."""
    cells = [(row, {name: value(row) for name, value in columns.items()}) for row in result.rows]
    cells = [(row, values) for row, values in cells if any(value is not None for value in values.values())]
    shown = [name for name in columns if any(values[name] is not None for _, values in cells)]
    if not shown:
        return []
    rows = []
    for row, values in cells:
        seeds = f" ({row.num_seeds})" if row.num_seeds > 1 else ""
        kept = (MISSING if values[name] is None else str(values[name]) for name in shown)
        rows.append([f"{row.name.removesuffix(' builder')}{seeds}", *kept])
    return [grid_of("trees", shown, rows, title=title)]


def _symbol_table(row: TreeAnalysis) -> Grid:
    """What the labels of a system's trees stand for, the most frequent ones, of its first seed."""
    rows = []
    for symbol, of_labels in list(row.symbols.items())[:_MOST_SYMBOLS]:
        total, own = sum(of_labels.values()), {label: count for label, count in of_labels.items() if label}
        labels = ", ".join(f"{label} {count}" for label, count in list(own.items())[:_MOST_MEANINGS])
        rows.append([symbol, str(total), f"{100 * sum(own.values()) / total:.0f}", labels or MISSING])
    grid = grid_of("label", ("constituents", "gold %", "gold labels"), rows, title=f"labels of {row.name}")
    return replace(grid, columns=[*grid.columns[:-1], replace(grid.columns[-1], justify="left")])


def rules_table(name: str, rules: Sequence[UsedRule]) -> Grid:
    """The rules that a grammar uses most, with bars for how often."""
    most = max((rule.count for rule in rules), default=1)
    rows = [
        [
            f"{rule.parent} -> {' '.join(rule.children)}",
            str(rule.count),
            f"{rule.probability:.3f}",
            "█" * max(1, round(_WIDEST_BAR * rule.count / most)),
        ]
        for rule in rules
    ]
    grid = grid_of("rule", ("times", "p(rule)", ""), rows, title=f"most used rules of {name}")
    return replace(grid, columns=[*grid.columns[:-1], replace(grid.columns[-1], justify="left")])


def _means(field: str, classes: Iterable[str]) -> dict[str, Callable[[TreeAnalysis], object]]:
    def mean_of(name: str) -> Callable[[TreeAnalysis], object]:
        return lambda row: f"{getattr(row, field)[name].mean:.1f}" if name in getattr(row, field) else None

    return {name: mean_of(name) for name in classes}


def statistics_table(corpora: Mapping[str, PreparedCorpus]) -> Grid:
    """One column a corpus, one row a count or distribution."""
    columns = [dict(_statistics_rows(corpus_statistics(corpus))) for corpus in corpora.values()]
    rows = [[name, *(column[name] for column in columns)] for name in columns[0]]
    return grid_of("statistic", corpora, rows, title="Corpora")


def _statistics_rows(found: CorpusStatistics) -> Iterator[tuple[str, str]]:
    yield "sentences", f"{found.num_sentences:,}"
    yield "tokens", f"{found.num_tokens:,}"
    yield "types", f"{found.num_types:,}"
    yield "types seen twice or more", f"{found.num_types_twice:,}"
    yield "words a sentence: mean, median, p95, max", _distribution(found.words)
    yield "labels", f"{found.num_labels:,}"
    yield "nonterminals", f"{found.num_nonterminals:,}"
    yield "depth: mean, median, p95, max", _distribution(found.depth)
    yield "actions a sentence: mean, median, p95, max", _distribution(found.actions)
    yield "most open nonterminals, top-down / in-order", f"{found.max_open_top_down} / {found.max_open_in_order}"
    consecutive = f"{found.max_consecutive_top_down} / {found.max_consecutive_in_order}"
    yield "most consecutive NTs, top-down / in-order", consecutive


def _distribution(values: Distribution | None) -> str:
    if values is None:
        return "no trees"
    return f"{values.mean:.1f}, {values.median:.0f}, {values.p95:.0f}, {values.max}"


def _percent(value: float | None) -> str:
    return MISSING if value is None else f"{100 * value:.1f}"
