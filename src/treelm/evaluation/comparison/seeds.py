"""Rows of a comparison that are seeds of one model."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from treelm.evaluation.comparison.metrics import RunMetrics
from treelm.evaluation.comparison.tables import Column
from treelm.evaluation.intervals import interval


def seed_groups(rows: Sequence[RunMetrics]) -> list[list[RunMetrics]]:
    """Group rows that differ by their seed alone, in the order of the first of each; what is alone is a group too.

    Rows of other texts, searches, vocabularies or training data, and two rows of one model, are not of one group.
    """
    groups: dict[tuple[str, ...], list[RunMetrics]] = {}
    seen: dict[tuple[str, ...], set[str]] = {}
    for row in rows:
        trained_on = row.data_identity.get("train", "")
        key: tuple[str, ...] = (row.system, row.recipe, row.text, row.vocabulary, row.search, trained_on)
        if not row.recipe or (row.weights and row.weights in seen.get(key, ())):
            key = ("", row.name)
        groups.setdefault(key, []).append(row)
        seen.setdefault(key, set()).add(row.weights)
    return list(groups.values())


def mean_of(column: Column, group: Sequence[RunMetrics]) -> tuple[float, float | None] | None:
    """The mean of a metric over a group, and half of its interval of two seeds or more; None if some row lacks it."""
    values = [value for row in group if isinstance(value := column.value(row), (int, float))]
    return (fmean(values), interval(values)) if len(values) == len(group) else None
