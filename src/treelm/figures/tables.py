"""Tables in the terminal: comparisons, test suites, minimal pairs, statistics of corpora."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from textwrap import wrap
from typing import TYPE_CHECKING, Literal

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from treelm.corpora.corpus import PreparedCorpus
from treelm.corpora.statistics import CorpusStatistics, Distribution, corpus_statistics
from treelm.evaluation.comparison.metrics import Comparison
from treelm.evaluation.comparison.tables import LEGEND, Column, shown_columns
from treelm.evaluation.syntaxgym.results import Reference, circuit_accuracies, overall_score
from treelm.models.structures import UsedRule

if TYPE_CHECKING:
    from treelm.evaluation.minimal_pairs import MinimalPairResult, PairCounts
    from treelm.evaluation.structure import StructureResult, TreeAnalysis
    from treelm.evaluation.syntaxgym.scoring import SuiteResult

MISSING = "-"
_TITLES: dict[Literal["figures", "sizes and speed", "syntax tests"], str] = {
    "figures": "figures",
    "sizes and speed": "sizes and speed",
    "syntax tests": "tests of syntax: correct in percent",
}


def comparison_tables(comparison: Comparison) -> RenderableType:
    """One row a run in a table for each group of columns, tests of syntax last, and the notes below."""
    columns = [column for column in shown_columns(comparison) if not column.is_wide]
    groups = {column.group for column in columns}
    shown = [(group, title) for group, title in _TITLES.items() if group in groups]
    tables = [part for group, title in shown for part in (_group_table(comparison, columns, group, title), Text())]
    return Group(*tables, Text(f"ppl: perplexity. {LEGEND}"), *(Text(f"note: {note}") for note in comparison.notes))


def _group_table(comparison: Comparison, columns: Sequence[Column], group: str, title: str) -> Table:
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=0)
    shown = [column for column in columns if column.group in ("names", group)]
    for column in shown:
        widest = max(cell_len(column.cell(row)) for row in comparison.runs)
        justify: Literal["left", "right"] = "left" if column.group == "names" else "right"
        table.add_column(_narrow_heading(column.heading, widest), justify=justify, no_wrap=True)
    for row in comparison.runs:
        table.add_row(*(Text(column.cell(row)) for column in shown))
    return table


def _narrow_heading(text: str, cells: int) -> str:
    """A heading cut into lines at blanks, about as wide as what stands below it."""
    text = text.replace("perplexity", "ppl")
    return "\n".join(wrap(text, max(cells, *map(len, text.split())) if text else 1, break_on_hyphens=False))


def suite_table(results: Sequence[SuiteResult], references: Sequence[Reference] = (), *, title: str = "") -> Table:
    """One row a prediction of a suite: accuracy in percent, and over items without unknown words where they count."""
    names = ("items", "unknown", "accuracy", "without unknown", *(one.name for one in references))
    table = _table("suite", names, title=title)
    for result in results:
        beside = (_percent(one.accuracies.get(result.suite)) for one in references)
        table.add_row(*_prediction_cells(result, 0), *beside)
        for number in range(1, len(result.formulas)):
            table.add_row(*_prediction_cells(result, number), *(MISSING for _ in references))
    return table


def _prediction_cells(result: SuiteResult, prediction: int) -> tuple[str, ...]:
    name = result.suite if prediction == 0 else f"  prediction {prediction + 1}"
    unknown = sum(one.has_unknown for one in result.outcomes if one.prediction == prediction)
    shares = (result.accuracy(prediction), result.accuracy_without_unknown(prediction))
    return (name, str(result.num_items), str(unknown), *map(_percent, shares))


def circuit_table(results: Sequence[SuiteResult], references: Sequence[Reference] = ()) -> Table:
    """Mean accuracy of the circuits that are complete, and the SG score over all 31 suites, beside published models.

    A second column has the same over items without unknown words, where every suite has such items.
    """
    from treelm.evaluation.syntaxgym.results import accuracies, accuracies_without_unknown

    by_model: list[tuple[str, Mapping[str, float]]] = [
        ("accuracy", accuracies(results)),
        ("without unknown", accuracies_without_unknown(results)),
        *((one.name, one.accuracies) for one in references),
    ]
    table = _table("mean over suites", [name for name, _ in by_model], title="circuits")
    by_circuit = [circuit_accuracies(values) for _, values in by_model]
    for circuit in by_circuit[0]:
        table.add_row(circuit, *(_percent(one.get(circuit)) for one in by_circuit))
    table.add_row("SG score (31 suites)", *(_percent(overall_score(values)) for _, values in by_model))
    return table


def pair_table(result: MinimalPairResult, *, title: str = "") -> Table:
    """One row a group of minimal pairs, all groupings one under the other, and the whole at the end."""
    bound = "; log probabilities are lower bounds" if result.is_lower_bound else ""
    caption = "; ".join(result.notes) + bound + "; a tie is not correct"
    table = _table("group", ("pairs", "ties", "accuracy"), title=title)
    table.caption, table.caption_justify = caption.removeprefix("; "), "left"
    for grouping, members in result.groups.items():
        for group, counts in members.items():
            table.add_row(f"{grouping}: {group}", *_pair_cells(counts))
        table.add_section()
    table.add_row("all", *_pair_cells(result.overall))
    table.add_row("all without unknown words", *_pair_cells(result.without_unknown))
    return table


def _pair_cells(counts: PairCounts) -> tuple[str, ...]:
    return str(counts.total), str(counts.ties), _percent(counts.accuracy if counts.total else None)


def structure_tables(result: StructureResult) -> RenderableType:
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
    return Group(
        _structure_table(result, f"{result.protocol.name}, {result.num_sentences} sentences", overall),
        _structure_table(result, "recall by label", _means("recall_by_label", labels)),
        _structure_table(result, "F1 by words of a span", _means("f1_by_span_length", class_names(SPAN_LENGTHS))),
        _structure_table(
            result, "F1 by words of a sentence", _means("f1_by_sentence_length", class_names(SENTENCE_LENGTHS))
        ),
        _structure_table(result, "distance by height", _means("distance_by_height", class_names(HEIGHTS))),
        *(_symbol_table(row) for row in result.rows if row.symbols),
        Text(STRUCTURE_LEGEND),
        Text(f"note: {result.protocol.description}"),
    )


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
) -> RenderableType:
    """Rows and columns that have a value; nothing if there are none."""
    cells = [(row, {name: value(row) for name, value in columns.items()}) for row in result.rows]
    cells = [(row, values) for row, values in cells if any(value is not None for value in values.values())]
    shown = [name for name in columns if any(values[name] is not None for _, values in cells)]
    if not shown:
        return Text()
    table = _table("trees", shown, title=title)
    for row, values in cells:
        seeds = f" ({row.num_seeds})" if row.num_seeds > 1 else ""
        kept = (MISSING if values[name] is None else str(values[name]) for name in shown)
        table.add_row(f"{row.name.removesuffix(' builder')}{seeds}", *kept)
    return table


def _symbol_table(row: TreeAnalysis) -> RenderableType:
    """What the labels of a system's trees stand for, the most frequent ones, of its first seed."""
    table = _table("label", ("constituents", "gold %", "gold labels"), title=f"labels of {row.name}")
    for symbol, of_labels in list(row.symbols.items())[:_MOST_SYMBOLS]:
        total, own = sum(of_labels.values()), {label: count for label, count in of_labels.items() if label}
        labels = ", ".join(f"{label} {count}" for label, count in list(own.items())[:_MOST_MEANINGS])
        table.add_row(symbol, str(total), f"{100 * sum(own.values()) / total:.0f}", labels or MISSING)
    return table


def rules_table(name: str, rules: Sequence[UsedRule]) -> Table:
    """The rules that a grammar uses most, with bars for how often."""
    table = _table("parent", ("children", "times", "p(rule)", ""), title=f"most used rules of {name}")
    most = max((rule.count for rule in rules), default=1)
    for rule in rules:
        bar = "█" * max(1, round(_WIDEST_BAR * rule.count / most))
        table.add_row(rule.parent, "  ".join(rule.children), str(rule.count), f"{rule.probability:.3f}", bar)
    return table


def _means(field: str, classes: Iterable[str]) -> dict[str, Callable[[TreeAnalysis], object]]:
    def mean_of(name: str) -> Callable[[TreeAnalysis], object]:
        return lambda row: f"{getattr(row, field)[name].mean:.1f}" if name in getattr(row, field) else None

    return {name: mean_of(name) for name in classes}


def statistics_table(corpora: Mapping[str, PreparedCorpus]) -> Table:
    """One column a corpus, one row a count or distribution."""
    table = _table("statistic", corpora)
    table.title, table.title_justify = "Corpora", "center"
    columns = [dict(_statistics_rows(corpus_statistics(corpus))) for corpus in corpora.values()]
    for name in columns[0]:
        table.add_row(name, *(column[name] for column in columns))
    return table


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


def _table(first: str, others: Iterable[str], *, title: str = "") -> Table:
    """A table whose first column names the row and whose others hold numbers."""
    table = Table(title=title or None, title_justify="left")
    table.add_column(first)
    for name in others:
        table.add_column(name, justify="right")
    return table


def _percent(value: float | None) -> str:
    return MISSING if value is None else f"{100 * value:.1f}"
