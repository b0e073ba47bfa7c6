"""The hand-written gradients, with dropout masks and each form of attention."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from tests.models.prpn.worlds import prpn
from treelm.models.prpn.kernels import LayerMasks, ReadingSweep

NUM_STEPS, NUM_ROWS, SIZE, NUM_SLOTS = 4, 2, 3, 3


def random(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


def arguments(*, attends: bool) -> list[Any]:
    torch.manual_seed(0)
    gates, memory = random(NUM_STEPS, NUM_ROWS, 4 * SIZE), random(NUM_ROWS, NUM_SLOTS, 2 * SIZE)
    keys, log_weights = random(NUM_STEPS, NUM_ROWS, SIZE), random(NUM_STEPS, NUM_ROWS, NUM_SLOTS)
    weights = [random(SIZE, SIZE), random(4 * SIZE, SIZE), random(4 * SIZE)]
    norms = [random(4 * SIZE), random(4 * SIZE), random(SIZE), random(SIZE)]
    if not attends:
        return [gates, None, None, memory, None, *weights[1:], *norms]
    return [gates, keys, log_weights, memory, *weights, *norms]


@pytest.mark.parametrize(("epsilon", "attends"), [(0, True), (0.1, True), (0, False)])
def test_gradients_with_masks(epsilon: float, attends: bool) -> None:
    tensors = arguments(attends=attends)
    last_hidden, keys = (torch.rand(NUM_STEPS, NUM_ROWS, SIZE).double() if attends else None for _ in range(2))
    masks = LayerMasks(last_hidden=last_hidden, keys=keys, recurrent=torch.rand(SIZE).double())
    sweep = lambda *values: ReadingSweep.apply(*values, epsilon, *masks)  # noqa: E731
    assert torch.autograd.gradcheck(sweep, tensors, fast_mode=True)


def test_the_recurrent_mask_is_one_for_all_steps_and_rows() -> None:
    layer = prpn(recurrent_dropout=0.5).layers[0]
    masks = layer._masks(torch.zeros(7, 3, 24, dtype=torch.float64))  # type: ignore[operator]
    assert masks.recurrent.shape == (6,)
    assert set(masks.recurrent.tolist()) <= {0.0, 2.0}
    assert masks.keys is None
