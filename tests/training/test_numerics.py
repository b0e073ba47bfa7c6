"""Settings of torch hold while training runs, and are put back whatever happens."""

from __future__ import annotations

import pytest
import torch

from treelm.models.layers.precision import rounds_operands
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


def use_and_fail(config: TrainingConfig, found: list[tuple[object, ...]]) -> None:
    with numerics(config):
        found.append(settings())
        raise KeyError


def test_settings_hold_inside_and_are_put_back_after_an_error() -> None:
    before, found = settings(), list[tuple[object, ...]]()
    with pytest.raises(KeyError):
        use_and_fail(TrainingConfig(threads=1, precision="fp32-fast", deterministic=True), found)
    products = "highest" if rounds_operands("medium") else "medium"
    assert found == [(1, products, True, False, False)]
    assert settings() == before
