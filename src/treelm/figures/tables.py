"""Tables in the terminal: comparisons, test suites, minimal pairs, statistics of corpora."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rich.text import Text

from treelm.corpora.corpus import Distribution, PreparedCorpus, Statistic, corpus_statistics
from treelm.evaluation.comparison.frame import ComparisonFrame
from treelm.evaluation.comparison.metrics import Comparison
from treelm.evaluation.syntaxgym.results import (
    Reference,
    accuracies,
    accuracies_without_unknown,
    circuit_accuracies,
    overall_score,
)
from treelm.evaluation.tables import Row, Table
from treelm.io.terminal import stdout_console
from treelm.models.structures import UsedRule

if TYPE_CHECKING:
    from treelm.evaluation.minimal_pairs import MinimalPairResult, PairCounts
    from treelm.evaluation.structure import StructureResult, TreeAnalysis
    from treelm.evaluation.syntaxgym.scoring import SuiteResult

Printed = str | Table
"""What stands below each other in the terminal: tables and lines of text."""
_WIDEST = 10_000  # cells of a line


def print_table(*parts: Printed, wide: bool = False) -> None:
    """Print tables and lines on standard output, tables no wider than the terminal unless they shall be ``wide``."""
    console = stdout_console()
    tables = stdout_console(width=_WIDEST) if wide else console
    for part in parts:
        if isinstance(part, str):
            console.print(Text(part))
        else:
            tables.print(part)
            console.print()


def comparison_tables(comparison: Comparison, columns: Sequence[str] = ()) -> list[Printed]:
    """A table of the runs for each group of columns, and below them what headings mean and the notes."""
    frame = ComparisonFrame.of(comparison, columns)
    legend, *notes = frame.legend
    return [*frame.tables(), legend, *(f"note: {note}" for note in notes)]


def suite_table(
    results: Mapping[str, Sequence[SuiteResult]],
    references: Sequence[Reference] = (),
    *,
    title: str = "",
    details: bool = False,
) -> Table:
    """A row for each prediction of each suite: the accuracies of models in percent, beside published ones.

    A single model also has accuracies over items without unknown words. With ``details``, all models have these and
    numbers of items.
    """
    several = len(results) > 1
    rows: list[Row] = []
    for own in zip(*results.values(), strict=True):
        for number in range(len(own[0].formulas)):
            row: list[tuple[str, str | None]] = [("suite", f"  prediction {number + 1}" if number else own[0].suite)]
            for model, result in zip(results, own, strict=True):
                cells = {
                    "items": str(result.num_items),
                    "unknown": str(result.num_with_unknown(number)),
                    "accuracy": _percent(result.accuracy(number)),
                    "without unknown": _percent(result.accuracy_without_unknown(number)),
                }
                if several and not details:
                    row.append((model, cells["accuracy"]))
                    continue
                shown = cells if details else ("accuracy", "without unknown")
                row += [(f"{model} {name}" if several else name, cells[name]) for name in shown]
            known = [(one.name, _percent(one.accuracies.get(own[0].suite))) for one in references]
            rows.append([*row, *((name, None if number else share) for name, share in known)])
    return Table.of(rows, title=title)


def circuit_table(results: Mapping[str, Sequence[SuiteResult]], references: Sequence[Reference] = ()) -> Table:
    """Mean accuracies of the circuits that are complete, and the SG score, in percent, beside published models.

    A single model also has means over items without unknown words.
    """
    by_model: list[tuple[str, Mapping[str, float]]] = [(name, accuracies(own)) for name, own in results.items()]
    if len(results) == 1:
        (own,) = results.values()
        by_model = [("accuracy", accuracies(own)), ("without unknown", accuracies_without_unknown(own))]
    by_model += [(one.name, one.accuracies) for one in references]
    columns = [
        (name, {**circuit_accuracies(values), "SG score (31 suites)": overall_score(values)})
        for name, values in by_model
    ]
    rows = [
        [("mean over suites", circuit), *((name, _percent(values.get(circuit))) for name, values in columns)]
        for circuit in columns[0][1]
    ]
    return Table.of(rows, title="circuits")


def pair_table(results: Mapping[str, MinimalPairResult], *, title: str = "") -> Table:
    """One row a group of minimal pairs, all groupings one under the other, and the whole at the end."""

    def row(label: str, counts: Sequence[PairCounts]) -> Row:
        totals = {str(one.total) for one in counts}
        shares = [_percent(one.accuracy) for one in counts]
        own = (
            zip(results, shares, strict=True)
            if len(results) > 1
            else (("ties", str(counts[0].ties)), ("accuracy", shares[0]))
        )
        return [("group", label), ("pairs", totals.pop() if len(totals) == 1 else None), *own]

    rows, ends = [], []
    for grouping, members in next(iter(results.values())).groups.items():
        rows += [row(f"{grouping}: {one}", [own.groups[grouping][one] for own in results.values()]) for one in members]
        ends.append(len(rows) - 1)
    rows.append(row("all", [own.overall for own in results.values()]))
    rows.append(row("all without unknown words", [own.without_unknown for own in results.values()]))
    notes = []
    for name, own in results.items():
        said = "; ".join([*own.notes, *["log probabilities are lower bounds"] * own.is_lower_bound])
        notes += [f"{name}: {said}" if len(results) > 1 else said] if said else []
    return Table.of(rows, title=title, caption="; ".join([*notes, "a tie is not correct"]), ends=frozenset(ends))


STRUCTURE_LEGEND = (
    "Means over seeds; the first table has deviations, too. F1 is unlabelled; by length it is of all spans together. "
    "seeds agree: corpus F1 of each pair. left, right: against left- and right-branching trees. Spearman: of distances "
    "and heights of the gold tree, mean of sentences. distance by height: in standard deviations above its sentence's "
    "mean, where the gold tree is so high. labels: constituents found whose gold label is the one that their own "
    "label has most often. not converged %: words whose search has not converged."
)
_MOST_LABELS, _MOST_SYMBOLS, _MOST_MEANINGS = 8, 12, 3


def structure_tables(result: StructureResult) -> list[Printed]:
    """What trees have learned, overall, by label, length and height; a row for each system or kind of trivial trees."""
    from treelm.evaluation.structure import HEIGHTS, SENTENCE_LENGTHS, SPAN_LENGTHS, class_names

    overall: list[dict[str, object]] = [
        {
            "sentence F1": row.sentence_f1,
            "corpus F1": row.corpus_f1,
            "seeds agree": row.agreement,
            "left": row.left_branching,
            "right": row.right_branching,
            "Spearman": row.height_correlation and f"{row.height_correlation.mean:.2f}",
            "labels": row.many_to_one,
            "not converged %": row.unconverged,
        }
        for row in result.rows
    ]
    parts = {f"{result.protocol.name}, {result.num_sentences} sentences": overall}
    for title, field, classes in (
        ("recall by label", "recall_by_label", list(result.labels)[:_MOST_LABELS]),
        ("F1 by words of a span", "f1_by_span_length", class_names(SPAN_LENGTHS)),
        ("F1 by words of a sentence", "f1_by_sentence_length", class_names(SENTENCE_LENGTHS)),
        ("distance by height", "distance_by_height", class_names(HEIGHTS)),
    ):
        found = [getattr(row, field) for row in result.rows]
        parts[title] = [{name: f"{own[name].mean:.1f}" if name in own else None for name in classes} for own in found]
    tables = []
    for title, cells in parts.items():
        shown = [name for name in cells[0] if any(own[name] is not None for own in cells)] if cells else []
        rows = [
            [
                ("trees", f"{row.name.removesuffix(' builder')}{f' ({row.num_seeds})' if row.num_seeds > 1 else ''}"),
                *((name, None if own[name] is None else str(own[name])) for name in shown),
            ]
            for row, own in zip(result.rows, cells, strict=True)
            if any(value is not None for value in own.values())
        ]
        tables += [Table.of(rows, title=title)] if rows else []
    labels = [_symbol_table(row) for row in result.rows if row.symbols]
    return [*tables, *labels, STRUCTURE_LEGEND, f"note: {result.protocol.description}"]


def _symbol_table(row: TreeAnalysis) -> Table:
    """What the labels of a system's trees stand for, the most frequent ones, of its first seed."""
    rows = []
    for symbol, of_labels in list(row.symbols.items())[:_MOST_SYMBOLS]:
        total, own = sum(of_labels.values()), [(label, count) for label, count in of_labels.items() if label]
        labels = ", ".join(f"{label} {count}" for label, count in own[:_MOST_MEANINGS])
        share = f"{100 * sum(count for _, count in own) / total:.0f}"
        rows.append(
            [("label", symbol), ("constituents", str(total)), ("gold %", share), ("gold labels", labels or None)]
        )
    return Table.of(rows, title=f"labels of {row.name}", texts=frozenset({3}))


def rules_table(name: str, rules: Sequence[UsedRule]) -> Table:
    """The rules that a grammar uses most."""
    rows = [
        [
            ("rule", f"{rule.parent} -> {' '.join(rule.children)}"),
            ("times", str(rule.count)),
            ("p(rule)", f"{rule.probability:.3g}"),
        ]
        for rule in rules
    ]
    return Table.of(rows, title=f"most used rules of {name}")


def statistics_table(corpora: Mapping[str, PreparedCorpus]) -> Table:
    """One column a corpus, one row a count or distribution."""
    found = {name: corpus_statistics(corpus) for name, corpus in corpora.items()}
    rows = []
    for name, first in next(iter(found.values())).items():
        kind = ": mean, median, p95, max" if isinstance(first, Distribution | None) else ""
        kind = ", top-down / in-order" if isinstance(first, tuple) and not kind else kind
        rows.append([("statistic", f"{name}{kind}"), *((one, _statistic(own[name])) for one, own in found.items())])
    return Table.of(rows, title="Corpora")


def _statistic(value: Statistic) -> str:
    if value is None:
        return "no trees"
    if isinstance(value, Distribution):
        return f"{value.mean:.1f}, {value.median:.0f}, {value.p95:.0f}, {value.max}"
    return f"{value:,}" if isinstance(value, int) else " / ".join(map(str, value))


def _percent(value: float | None) -> str | None:
    return None if value is None else f"{100 * value:.1f}"
