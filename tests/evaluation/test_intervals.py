"""The paired bootstrap by its definition, and what follows from it by hand."""

from __future__ import annotations

import numpy as np
import pytest

from treelm.evaluation.intervals import RESAMPLES, metric, paired_interval, resampled


def test_resampled_sums_are_those_of_units_drawn_with_replacement() -> None:
    sums = np.random.default_rng(1).integers(0, 9, size=(7, 3)).astype(float)
    generator = np.random.default_rng(0)
    expected = [sums[generator.integers(7, size=7)].sum(0) for _ in range(RESAMPLES)]
    assert resampled(sums) == pytest.approx(np.array(expected))


def test_metrics_of_sums_are_f1_and_perplexity() -> None:
    assert metric(np.array([[3.0, 4.0, 6.0], [0.0, 0.0, 0.0]])).tolist() == [60.0, 0.0]
    assert metric(np.array([12.0, 4.0])) == 8.0


def test_a_difference_that_every_unit_has_is_certain_and_one_of_chance_is_not() -> None:
    """Pairing matters: sentences differ among each other far more than systems do on any of them."""
    generator = np.random.default_rng(2)
    words = generator.integers(5, 30, size=300).astype(float)
    bits = words * generator.uniform(2, 12, size=300)
    one, other = np.stack([bits, words], 1), np.stack([bits + 0.1 * words, words], 1)
    perplexities = metric(np.stack([one.sum(0), other.sum(0)]))
    low, high = paired_interval([one], [other])
    assert low < perplexities[0] - perplexities[1] < high < 0
    noise = np.stack([bits + generator.normal(size=300), words], 1)
    low, high = paired_interval([one], [noise])
    assert low < 0 < high
    assert paired_interval([one, one], [one]) == pytest.approx((0, 0), abs=1e-9), "means over seeds"
