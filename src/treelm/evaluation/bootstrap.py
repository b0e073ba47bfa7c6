"""A paired bootstrap: how far a difference between two systems may be one of the text that they were measured on.

Sentences of a text, or its documents, are drawn again with replacement, the same ones for both systems (Efron and
Tibshirani 1993; Berg-Kirkpatrick, Burkett and Klein 2012 on its use with systems for language).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from treelm.evaluation.intervals import CONFIDENCE

RESAMPLES = 1000
Floats = NDArray[np.float64]


def resampled(sums: Floats) -> Floats:
    """Totals of texts of as many units drawn with replacement: of sums by unit (U, K), (RESAMPLES, K).

    Whichever sums are given, the draws are the same ones.
    """
    generator, num_units = np.random.default_rng(0), len(sums)
    draws = (generator.integers(num_units, size=num_units) for _ in range(RESAMPLES))
    return np.stack([np.bincount(drawn, minlength=num_units) @ sums for drawn in draws])


def metric(totals: Floats) -> Floats:
    """F1 in percent of matched, gold and predicted spans (..., 3), or perplexity of bits and predictions (..., 2)."""
    if totals.shape[-1] == 2:
        return np.exp2(totals[..., 0] / totals[..., 1])
    return 200 * totals[..., 0] / np.maximum(totals[..., 1] + totals[..., 2], 1)


def paired_interval(one: Sequence[Floats], other: Sequence[Floats]) -> tuple[float, float]:
    """The interval of ``one`` less ``other``: means over seeds of a metric, given each seed's sums by unit."""
    drawn = resampled(np.hstack([*one, *other])).reshape(RESAMPLES, len(one) + len(other), -1)
    first, second = (metric(of).mean(1) for of in np.split(drawn, [len(one)], axis=1))
    low, high = np.quantile(first - second, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return float(low), float(high)
