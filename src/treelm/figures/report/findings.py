"""What a comparison has found, in two sentences at the top of the page, computed from its table."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from treelm.evaluation.comparison.metrics import Comparison, RunMetrics
from treelm.evaluation.comparison.seeds import mean_of, seed_groups
from treelm.evaluation.comparison.tables import Column, shown_columns
from treelm.evaluation.intervals import CONFIDENCE


class Standing(NamedTuple):
    """A model's place by a metric."""

    rows: list[RunMetrics]  # its seeds
    mean: float
    spread: float | None  # half of the interval of the mean

    @property
    def name(self) -> str:
        """What the page calls the model: of several seeds, their system."""
        return self.rows[0].name if len(self.rows) == 1 else self.rows[0].system

    def in_words(self, column: Column) -> str:
        """The figure, with its interval over seeds if there are several."""
        if self.spread is None:
            return column.cell(self.rows[0])
        bound = "≤ " if column.cell(self.rows[0]).startswith("≤") else ""
        mean, spread = column.text(self.mean), column.text(self.spread)
        return f"{bound}{mean} ± {spread}, the {CONFIDENCE:.0%} interval over {len(self.rows)} seeds"


def ranking(column: Column, comparison: Comparison) -> list[Standing]:
    """Models by a metric, the best first: of the largest group whose values compare."""
    groups: dict[object, list[Standing]] = {}
    for rows in seed_groups(comparison.runs):
        found = mean_of(column, rows)
        if found is not None:
            groups.setdefault(column.among(rows[0]), []).append(Standing(rows, *found))
    largest = max(groups.values(), key=len, default=[])
    return sorted(largest, key=lambda one: one.mean, reverse=column.better == "higher")


def findings(comparison: Comparison) -> list[str]:
    """At most two sentences: who predicts words best, and who knows most of syntax. None of what has no rivals."""
    columns = {column.name: column for column in shown_columns(comparison) if column.better}
    sentences = (_of_words(columns, comparison), "; ".join(_of_syntax(columns, comparison)))
    return [f"{one[0].upper()}{one[1:]}." for one in sentences if one]


def _of_words(columns: dict[str, Column], comparison: Comparison) -> str:
    column = columns.get("perplexity")
    found = [] if column is None else ranking(column, comparison)
    if column is None or len(found) < 2:
        return ""
    return f"of {len(found)} models, {found[0].name} has the lowest perplexity: {_said(column, found)}"


def _of_syntax(columns: dict[str, Column], comparison: Comparison) -> Iterator[str]:
    tests = _first(columns, "sg_score", "mean_over_suites", "minimal_pairs")
    if tests is not None and len(found := ranking(tests, comparison)) > 1:
        yield f"in tests of syntax, {found[0].name} leads {len(found)} models ({tests.heading}): {_said(tests, found)}"
    trees = _first(columns, "unlabeled_f1")
    if trees is not None and len(found := ranking(trees, comparison)) > 1:
        gold = f"to the {found[0].rows[0].gold_trees} trees"
        yield f"{gold}, {found[0].name} comes closest of {len(found)} ({trees.heading}): {_said(trees, found)}"


def _first(columns: dict[str, Column], *names: str) -> Column | None:
    """The first column of one of these names, or of a file or protocol under one of them."""
    return next((column for name in names for key, column in columns.items() if key.partition(",")[0] == name), None)


def _said(column: Column, found: list[Standing]) -> str:
    """The figures of the best and the second, and whether the second may be as good, as far as seeds tell."""
    first, second = found[:2]
    text = f"{first.in_words(column)}, before {second.name} with {second.in_words(column)}"
    if first.spread is not None and second.spread is not None:
        apart = abs(first.mean - second.mean) > first.spread + second.spread
        text += "" if apart else ", and these intervals overlap"
    return text
