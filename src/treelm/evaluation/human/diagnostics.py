"""What a fit leaves of reading times: against fitted times, each surprisal and the normal distribution."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from treelm.evaluation.human.material import Floats
from treelm.evaluation.human.reading import Regression
from treelm.evaluation.human.regression import fit, slopes

NUM_BINS = 20
"""Bins of equally many words."""
NUM_QUANTILES = 40
_SIGMAS = 1.96


class Bin(NamedTuple):
    """Words that are near each other: where they lie, and the mean of a value with its interval."""

    centre: float
    mean: float
    low: float
    high: float
    num_words: int


@dataclass(frozen=True, kw_only=True)
class Residuals:
    """Residuals of the fit of one model to all words, in the unit of the times."""

    name: str
    by_fitted: tuple[Bin, ...]  # low and high: the 10th and 90th percentile
    by_surprisal: tuple[tuple[Bin, ...], ...]  # by lag: with the slope's share added, and the 95 % interval of the mean
    quantiles: tuple[tuple[float, float], ...]  # of the normal distribution, and of residuals in standard deviations


def diagnose(regression: Regression, name: str) -> Residuals:
    """Compute the residuals of a model's fit.

    Against a surprisal they are component-plus-residual values: the residual and what the straight line gives for this
    surprisal alone, so that a bend in them is one that the line misses.
    """
    from scipy.stats import norm

    bits = regression.bits(name)
    own_fit = fit(regression.times, np.column_stack([regression.base, bits]))
    fitted, left = np.asarray(own_fit.fittedvalues), np.asarray(own_fit.resid)
    lines = [
        0.0 if np.isnan(slope.ms_per_bit) else slope.ms_per_bit  # the baseline has this surprisal already
        for slope in slopes(regression.times, regression.base, bits)
    ]
    parts = [left + line * (own - own.mean()) for line, own in zip(lines, bits.T, strict=True)]
    shares = (np.arange(NUM_QUANTILES) + 0.5) / NUM_QUANTILES
    own_quantiles = np.quantile(left / left.std(), shares)
    return Residuals(
        name=name,
        by_fitted=tuple(_spread(x, y) for x, y in _bins(fitted, left)),
        by_surprisal=tuple(
            tuple(_mean(x, y) for x, y in _bins(own, part)) for own, part in zip(bits.T, parts, strict=True)
        ),
        quantiles=tuple(zip(norm.ppf(shares).tolist(), own_quantiles.tolist(), strict=True)),
    )


def _bins(places: Floats, values: Floats) -> list[tuple[Floats, Floats]]:
    """Cut words into bins of equally many, by their places."""
    order = np.argsort(places, kind="stable")
    parts = np.array_split(order, min(NUM_BINS, len(order)))
    return [(places[part], values[part]) for part in parts]


def _mean(places: Floats, values: Floats) -> Bin:
    half = _SIGMAS * values.std(ddof=1) / len(values) ** 0.5 if len(values) > 1 else 0.0
    mean = float(values.mean())
    return Bin(float(places.mean()), mean, float(mean - half), float(mean + half), len(values))


def _spread(places: Floats, values: Floats) -> Bin:
    low, high = np.quantile(values, (0.1, 0.9)).tolist()
    return Bin(float(places.mean()), float(values.mean()), low, high, len(values))
