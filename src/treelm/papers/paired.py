"""Differences between rows whose seeds are paired: what paired seeds have in common drops out of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean

from treelm.evaluation.intervals import interval


@dataclass(frozen=True, kw_only=True)
class PairedDifference:
    """A row's values less those of another row, for each seed that both have: one at least."""

    other: str
    """Name of the other row."""
    by_seed: Mapping[int, float]

    @property
    def mean(self) -> float:
        """Mean over the pairs."""
        return fmean(self.by_seed.values())

    @property
    def interval(self) -> float | None:
        """Half the width of the confidence interval of the mean; None of a single pair."""
        return interval(list(self.by_seed.values()))


def paired_difference(own: Mapping[int, float], other: Mapping[int, float], name: str) -> PairedDifference | None:
    """Subtract the values of the row that is named, seed by seed; None where the rows have no seed in common."""
    by_seed = {seed: own[seed] - other[seed] for seed in sorted(own.keys() & other.keys())}
    return PairedDifference(other=name, by_seed=by_seed) if by_seed else None
