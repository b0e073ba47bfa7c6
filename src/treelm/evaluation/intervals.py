"""Confidence intervals of means over seeds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist, stdev

CONFIDENCE = 0.95
_SMALL = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)
"""Quantiles of Student's t for that confidence, two-sided, by degrees of freedom from 1."""


def interval(values: Sequence[float]) -> float | None:
    """Half the width of the confidence interval of a mean, by Student's t; None of fewer than two values."""
    if len(values) < 2:
        return None
    return _quantile(len(values) - 1) * stdev(values) / math.sqrt(len(values))


def spread_text(spread: float | None, digits: int) -> str:
    """Write half an interval to stand after its mean, rounded; nothing where there is none."""
    return "" if spread is None else f" ± {spread:.{digits}f}"


def _quantile(freedom: int) -> float:
    """The quantile of Student's t; beyond the table by Cornish and Fisher's expansion, right to three decimals."""
    if freedom <= len(_SMALL):
        return _SMALL[freedom - 1]
    z = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
    terms = (z**3 + z) / 4, (5 * z**5 + 16 * z**3 + 3 * z) / 96, (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + math.fsum(term / float(freedom) ** power for power, term in enumerate(terms, start=1))
