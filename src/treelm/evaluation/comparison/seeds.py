"""Rows of a comparison that are seeds of one model."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from treelm.evaluation.comparison.metrics import RunMetrics
from treelm.evaluation.comparison.tables import Column
from treelm.evaluation.intervals import interval


def seed_groups(rows: Sequence[RunMetrics]) -> list[list[RunMetrics]]:
    """Group rows that differ by their seed alone, in the order of the first of each; what is alone is a group too."""
    groups: dict[tuple[str, str], list[RunMetrics]] = {}
    for row in rows:
        groups.setdefault(("", row.name) if not row.recipe else (row.system, row.recipe), []).append(row)
    return list(groups.values())


def mean_of(column: Column, group: Sequence[RunMetrics]) -> tuple[float, float | None] | None:
    """The mean of a metric over a group, and half of its interval of two seeds or more; None if some row lacks it."""
    values = [value for row in group if isinstance(value := column.value(row), (int, float))]
    return (fmean(values), interval(values)) if len(values) == len(group) else None
