"""Learning rates over time."""

from __future__ import annotations

import pytest

from treelm.training.config import TrainingConfig
from treelm.training.state import LearningRate, Patience, warmup_factor


def factors(steps: list[int], **settings: object) -> list[float]:
    config = TrainingConfig(schedule="warmup", **settings)
    return [warmup_factor(step, config) for step in steps]


def test_warmup_rises_to_the_peak_and_stays() -> None:
    assert factors([1, 2, 4, 9], warmup_steps=4) == [0.25, 0.5, 1.0, 1.0]


def test_inverse_square_root_halves_at_four_times_the_warmup() -> None:
    assert factors([4, 16, 64], warmup_steps=4, decay="inverse-sqrt") == [1.0, 0.5, 0.25]


def test_linear_decay_ends_at_zero() -> None:
    assert factors([2, 6, 10, 12], warmup_steps=2, decay="linear", decay_steps=10) == [1.0, 0.5, 0.0, 0.0]


def test_cosine_decay_is_half_way_in_the_middle() -> None:
    found = factors([2, 4, 6, 10], warmup_steps=2, decay="cosine", decay_steps=10)
    assert found == pytest.approx([1.0, 0.5 * (1 + 0.5**0.5), 0.5, 0.0])


def test_decay_without_warmup_starts_at_the_peak() -> None:
    assert factors([1], decay="inverse-sqrt") == [1.0]


def test_plateau_waits_for_its_patience_after_every_reduction() -> None:
    config = TrainingConfig(schedule="plateau", plateau_factor=0.5, plateau_patience=1, learning_rate=1.0)
    rate, found = LearningRate(), []
    for loss in [5.0, 4.0, 4.0, 4.0, 4.0, 4.0, 3.0]:
        rate.observe(loss, config)
        found.append(rate.at(1, config))
    assert found == [1.0, 1.0, 1.0, 0.5, 0.5, 0.25, 0.25]


def test_patience_counts_evaluations_since_the_best() -> None:
    patience = Patience()
    counts = []
    for loss in [3.0, 3.5, 3.0, 2.0, 2.5]:
        patience.observe(loss)
        counts.append(patience.num_worse)
    assert counts == [0, 1, 2, 0, 1]
