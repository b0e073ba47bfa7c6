"""Accuracies on test suites as tables, beside published models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.table import Table

from treelm.evaluation.syntaxgym.results import (
    Reference,
    accuracies,
    accuracies_without_unknown,
    circuit_accuracies,
    overall_score,
)
from treelm.evaluation.syntaxgym.scoring import SuiteResult

MISSING = "-"


def suite_table(results: Sequence[SuiteResult], references: Sequence[Reference] = (), *, title: str = "") -> Table:
    """One row a prediction of a suite: accuracy in percent, and over items without unknown words where they count."""
    table = Table(title=title or None, title_justify="left")
    table.add_column("suite")
    for name in ("items", "unknown", "accuracy", "without unknown", *(one.name for one in references)):
        table.add_column(name, justify="right")
    for result in results:
        beside = (_percent(one.accuracies.get(result.suite)) for one in references)
        table.add_row(*_cells(result, 0), *beside)
        for number in range(1, len(result.formulas)):
            table.add_row(*_cells(result, number), *(MISSING for _ in references))
    return table


def _cells(result: SuiteResult, prediction: int) -> tuple[str, ...]:
    name = result.suite if prediction == 0 else f"  prediction {prediction + 1}"
    unknown = sum(one.has_unknown for one in result.outcomes if one.prediction == prediction)
    return (
        name,
        str(result.num_items),
        str(unknown),
        _percent(result.accuracy(prediction)),
        _percent(result.accuracy_without_unknown(prediction)),
    )


def circuit_table(results: Sequence[SuiteResult], references: Sequence[Reference] = ()) -> Table:
    """Mean accuracy of the circuits that are complete, and the SG score over all 31 suites.

    Beside it the same over items without unknown words, where every suite has such items.
    """
    table = Table(title="circuits", title_justify="left")
    table.add_column("mean over suites")
    by_model: list[tuple[str, Mapping[str, float]]] = [
        ("accuracy", accuracies(results)),
        ("without unknown", accuracies_without_unknown(results)),
    ]
    by_model += [(one.name, one.accuracies) for one in references]
    for name, _ in by_model:
        table.add_column(name, justify="right")
    by_circuit = [circuit_accuracies(values) for _, values in by_model]
    for circuit in by_circuit[0]:
        table.add_row(circuit, *(_percent(one.get(circuit)) for one in by_circuit))
    table.add_row("SG score (31 suites)", *(_percent(overall_score(values)) for _, values in by_model))
    return table


def _percent(value: float | None) -> str:
    return MISSING if value is None else f"{100 * value:.1f}"
