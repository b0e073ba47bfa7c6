"""Training settings that make no sense are refused by name."""

from __future__ import annotations

import pytest

from treelm.errors import InputError
from treelm.training.config import TrainingConfig


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"epochs": 0}, 'epochs = 0; give 1 or more, or "none"'),
        ({"learning_rate": 0.0}, "learning_rate = 0.0; give a number above 0"),
        ({"betas": (0.9, 1.0)}, "betas.1 = 1.0; give a number below 1"),
        ({"epochs": None}, "epochs = None; give epochs, max_steps or max_minutes, or training would never end"),
        ({"warmup_steps": 10}, 'warmup_steps = 10; give 0, or schedule = "warmup"'),
        ({"warmup": 0.1}, 'warmup = 0.1; give 0.0, or schedule = "warmup"'),
        (
            {"schedule": "warmup", "decay": "linear", "epochs": None, "max_minutes": 5.0},
            "epochs = None; give epochs or max_steps, or the schedule in steps: warmup_steps and decay_steps",
        ),
        ({"decay_steps": 9}, 'decay_steps = 9; give "none", or decay = "linear" or "cosine"'),
        (
            {"schedule": "warmup", "warmup_steps": 9, "decay": "cosine", "decay_steps": 9},
            "decay_steps = 9; give a step above warmup_steps = 9",
        ),
        ({"threads": 100_000}, 'threads = 100000; give at most 1024, or "none"'),
        (
            {"batches": "stream", "micro_batch_size": 2},
            'micro_batch_size = 2; give "none", or a lower batch_size',
        ),
        (
            {"batches": "packed", "shuffle_documents": True},
            'shuffle_documents = True; give false, or batches = "stream"',
        ),
        ({"batches": "packed", "sentence_ends": False}, 'sentence_ends = False; give true, or batches = "stream"'),
        (
            {"optimizer": "sgd", "coupled_weight_decay": True},
            "coupled_weight_decay = True; give false: weight decay of SGD is part of the gradient anyway",
        ),
    ],
)
def test_refused_with_a_remedy(values: dict, message: str) -> None:
    with pytest.raises(InputError) as caught:
        TrainingConfig(**values)
    assert str(caught.value) == message
