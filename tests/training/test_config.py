"""Training settings that make no sense are refused by name."""

from __future__ import annotations

import pytest

from treelm.configs import from_plain, to_plain
from treelm.errors import InputError
from treelm.training.config import TrainingConfig


def test_round_trip_through_plain_values() -> None:
    config = TrainingConfig(epochs=None, max_minutes=3.5, precision="bf16", betas=(0.5, 0.9))
    assert from_plain(TrainingConfig, to_plain(config), where="here") == config


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"epochs": 0}, 'epochs = 0; give 1 or more, or "none"'),
        ({"batch_size": 0}, "batch_size = 0; give 1 or more"),
        ({"learning_rate": 0.0}, "learning_rate = 0.0; give a number above 0"),
        ({"learning_rate": float("nan")}, "learning_rate = nan; give a finite number"),
        ({"plateau_factor": 1.0}, "plateau_factor = 1.0; give a number below 1"),
        ({"betas": (0.9, 1.0)}, "betas.1 = 1.0; give a number below 1"),
        ({"weight_decay": -0.1}, "weight_decay = -0.1; give 0 or more"),
        ({"epochs": None}, "training would never end; set epochs, max_steps or max_minutes"),
        ({"warmup_steps": 10}, "warmup_steps = 10 with schedule = 'constant'; set schedule = \"warmup\""),
        ({"decay": "linear"}, "decay = 'linear' with schedule = 'constant'; set schedule = \"warmup\""),
        ({"decay_steps": 9}, 'decay_steps = 9 with decay = \'none\'; set decay = "linear" or "cosine"'),
        (
            {"schedule": "warmup", "warmup_steps": 9, "decay": "cosine", "decay_steps": 9},
            "decay = 'cosine' with decay_steps = 9; set decay_steps above warmup_steps = 9",
        ),
        ({"threads": 100_000}, 'threads = 100000; give at most 1024, or "none"'),
        ({"devices": 100_000}, "devices = 100000; give at most 1024"),
        ({"devices": 0}, "devices = 0; give 1 or more"),
        (
            {"shards": 3, "devices": 2, "num_nodes": 2},
            "shards = 3 for 4 processes; give each process a shard, or leave shards out",
        ),
        (
            {"batches": "stream", "batch_size": 3, "devices": 4, "max_actions": None},
            "a stream of batch_size = 3 rows for 4 shards; raise batch_size, or lower shards or devices",
        ),
        (
            {"cuda_graphs": True, "device": "cpu"},
            "cuda_graphs = true with device = 'cpu'; leave it out, or set device = \"cuda\"",
        ),
    ],
)
def test_refused_with_a_remedy(values: dict, message: str) -> None:
    with pytest.raises(InputError) as caught:
        TrainingConfig(**values)
    assert str(caught.value) == message


def test_a_word_that_is_no_choice_is_refused() -> None:
    with pytest.raises(InputError, match="precision = 'fp16'; give 'fp32', 'fp32-fast' or 'bf16'"):
        from_plain(TrainingConfig, {"precision": "fp16"}, where="recipe.toml [training]")
