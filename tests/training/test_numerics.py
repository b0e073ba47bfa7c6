"""Settings of torch hold while training runs, and are put back whatever happens."""

from __future__ import annotations

import pytest
import torch

from treelm.training.config import TrainingConfig
from treelm.training.numerics import numerics


def settings() -> tuple[object, ...]:
    return (
        torch.get_num_threads(),
        torch.get_float32_matmul_precision(),
        torch.are_deterministic_algorithms_enabled(),
        torch.utils.deterministic.fill_uninitialized_memory,
        torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction,
    )


def test_settings_hold_inside_and_are_put_back_after_an_error() -> None:
    before = settings()
    config = TrainingConfig(threads=1, precision="fp32-fast", deterministic=True)
    with pytest.raises(KeyError), numerics(config):
        assert settings() == (1, "medium", True, False, False)
        raise KeyError
    assert settings() == before
