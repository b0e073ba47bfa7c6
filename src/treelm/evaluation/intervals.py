"""Confidence intervals: of means over seeds, and of differences between two systems on one text.

For the latter, sentences of the text or its documents are drawn again with replacement, the same ones for both systems
(Efron and Tibshirani 1993; Berg-Kirkpatrick, Burkett and Klein 2012 on its use with systems for language).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist, stdev

import numpy as np
from numpy.typing import NDArray

CONFIDENCE = 0.95
RESAMPLES = 1000
Floats = NDArray[np.float64]
_SMALL = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)
"""Quantiles of Student's t for that confidence, two-sided, by degrees of freedom from 1."""


def interval(values: Sequence[float]) -> float | None:
    """Half the width of the confidence interval of a mean, by Student's t; None of fewer than two values."""
    if len(values) < 2:
        return None
    return _quantile(len(values) - 1) * stdev(values) / math.sqrt(len(values))


def spread_text(spread: float | None, digits: int) -> str:
    """Write half the width of an interval, rounded, such as `` ± 1.2``; nothing if there is none."""
    return "" if spread is None else f" ± {spread:.{digits}f}"


def _quantile(freedom: int) -> float:
    """The quantile of Student's t; beyond the table by Cornish and Fisher's expansion, right to three decimals."""
    if freedom <= len(_SMALL):
        return _SMALL[freedom - 1]
    z = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
    terms = (z**3 + z) / 4, (5 * z**5 + 16 * z**3 + 3 * z) / 96, (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + math.fsum(term / float(freedom) ** power for power, term in enumerate(terms, start=1))


def resampled(sums: Floats) -> Floats:
    """Draw as many units as there are, with replacement, ``RESAMPLES`` times, and add up their sums.

    From sums (U, K) follow totals (RESAMPLES, K). The draws are the same in every call with equal U.
    """
    generator, num_units = np.random.default_rng(0), len(sums)
    draws = (generator.integers(num_units, size=num_units) for _ in range(RESAMPLES))
    return np.stack([np.bincount(drawn, minlength=num_units) @ sums for drawn in draws])


def metric(totals: Floats) -> Floats:
    """Compute F1 in percent from matched, gold and predicted spans (..., 3), or perplexity from bits and numbers of
    predictions (..., 2).
    """
    if totals.shape[-1] == 2:
        return np.exp2(totals[..., 0] / totals[..., 1])
    return 200 * totals[..., 0] / np.maximum(totals[..., 1] + totals[..., 2], 1)


def paired_interval(one: Sequence[Floats], other: Sequence[Floats]) -> tuple[float, float]:
    """Compute the interval of the difference of two systems, ``one`` less ``other``, in a metric.

    Both are given as sums by unit, (U, 2) or (U, 3), of each of their seeds. A metric of a system is the mean of its
    seeds' metrics. Returns the lower and the upper end.
    """
    drawn = resampled(np.hstack([*one, *other])).reshape(RESAMPLES, len(one) + len(other), -1)
    first, second = (metric(of).mean(1) for of in np.split(drawn, [len(one)], axis=1))
    low, high = np.quantile(first - second, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return float(low), float(high)
