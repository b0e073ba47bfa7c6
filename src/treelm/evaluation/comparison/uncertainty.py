"""What seeds and the text that was drawn say of a comparison: means over seeds, and differences between models."""

from __future__ import annotations

from collections.abc import Iterator

from treelm.evaluation.bootstrap import paired_interval
from treelm.evaluation.comparison.frame import Column, ComparisonFrame, Standing
from treelm.evaluation.comparison.metrics import Difference, SeedMean


def seed_means(frame: ComparisonFrame) -> Iterator[SeedMean]:
    """Means and deviations of the metrics of models of several seeds."""
    for column in frame.shown():
        for one in (one for group in frame.standings(column) for one in group) if column.better else ():
            if one.deviation is not None and one.spread is not None:
                yield SeedMean(
                    model=one.name,
                    runs=one.runs,
                    metric=column.name,
                    mean=one.mean,
                    deviation=one.deviation,
                    half_interval=one.spread,
                )


def differences(frame: ComparisonFrame) -> Iterator[Difference]:
    """Differences of all models from the first one, metric by metric, where they compare and a bound is certain."""
    for column in frame.shown():
        for group in frame.standings(column) if column.better else ():
            first = [one for one in group if 0 in one.rows]
            for one in sorted(group, key=lambda one: one.rows[0]) if first else ():
                found = None if one in first else difference(frame, column, one, *first)
                if found is not None:
                    yield found


def difference(frame: ComparisonFrame, column: Column, one: Standing, other: Standing) -> Difference | None:
    """A model less another one, with its interval; None where bounds leave the order open, or sums are not known.

    A model of several seeds has the mean of their metrics.
    """
    for bound, rival in ((one, other), (other, one)):
        if bound.is_bound and not bound.is_before(rival, column.better):
            return None
    units = [[frame.data["units"][row] for row in each.rows] for each in (one, other)]
    sums = [[of for found in each if found is not None and (of := found.of(column.name)) is not None] for each in units]
    if [*map(len, sums)] != [*map(len, units)] or len({of.shape for each in sums for of in each}) > 1:
        return None
    low, high = paired_interval(*sums)
    return Difference(
        model=one.name,
        runs=one.runs,
        other=other.name,
        metric=column.name,
        sign="≤" if one.is_bound else "≥" if other.is_bound else "",
        difference=one.mean - other.mean,
        low=low,
        high=high,
        unit=units[0][0].unit,
        num_units=len(sums[0][0]),
    )
