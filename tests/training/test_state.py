"""Learning rates over time."""

from __future__ import annotations

import pytest

from treelm.training.config import TrainingConfig
from treelm.training.state import LearningRate, Patience, TrainingState, warmup_factor


@pytest.mark.parametrize(
    ("steps", "settings", "expected"),
    [
        pytest.param([1, 2, 4, 9], {"warmup_steps": 4}, [0.25, 0.5, 1.0, 1.0], id="it rises to the peak and stays"),
        pytest.param([4, 16, 64], {"warmup_steps": 4, "decay": "inverse-sqrt"}, [1.0, 0.5, 0.25], id="inverse-sqrt"),
        pytest.param([1], {"decay": "inverse-sqrt"}, [1.0], id="without warmup it starts at the peak"),
        pytest.param(
            [2, 6, 10, 12], {"warmup_steps": 2, "decay": "linear", "decay_steps": 10}, [1.0, 0.5, 0.0, 0.0], id="linear"
        ),
        pytest.param(
            [2, 4, 6, 10],
            {"warmup_steps": 2, "decay": "cosine", "decay_steps": 10},
            [1.0, 0.5 * (1 + 0.5**0.5), 0.5, 0.0],
            id="cosine",
        ),
    ],
)
def test_learning_rates_rise_and_decay(steps: list[int], settings: dict, expected: list[float]) -> None:
    config = TrainingConfig(schedule="warmup", **settings)
    assert [warmup_factor(step, config) for step in steps] == pytest.approx(expected)


@pytest.mark.parametrize(
    ("settings", "num_steps", "warmup_steps", "decay_steps"),
    [
        ({"warmup": 0.1, "decay": "cosine"}, 50, 5, 50),
        ({"warmup": 0.1, "decay": "cosine"}, 5000, 500, 5000),
        ({"warmup": 0.1, "decay": "cosine", "decay_steps": 80}, 5000, 8, 80),
        ({"warmup": 0.1, "warmup_steps": 3, "decay": "linear"}, 5000, 3, 5000),
        ({"warmup": 0.25, "decay": "inverse-sqrt"}, 80, 20, None),
        ({"warmup_steps": 4, "decay": "linear", "decay_steps": 9, "epochs": None, "max_minutes": 1.0}, None, 4, 9),
        ({"warmup": 0.9, "decay": "linear"}, 1, 0, 2),  # with a rate above 0 in the only step
    ],
)
def test_shares_of_a_run_are_its_steps_unless_steps_are_given(
    settings: dict, num_steps: int | None, warmup_steps: int, decay_steps: int | None
) -> None:
    found = TrainingConfig(schedule="warmup", **settings).schedule_steps(num_steps)
    assert found == (warmup_steps, decay_steps)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [({"epochs": 4}, 46), ({"epochs": 4, "max_steps": 30}, 30), ({"epochs": None, "max_steps": 90}, 90)],
)
def test_the_length_of_a_run_is_known_in_the_middle_of_an_epoch(settings: dict, expected: int) -> None:
    state = TrainingState(step=17, epoch=1, step_in_epoch=1)  # one of 16 steps, in the second, of 10
    assert state.num_steps(TrainingConfig(**settings), 10) == expected


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
