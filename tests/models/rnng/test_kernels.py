"""The form with few large calls: how few they are, in each precision, and that it is what a GPU computes."""

from __future__ import annotations

import pytest
import torch

from tests.models.rnng.calls import num_calls
from tests.models.rnng.test_network import gradients, random_trees
from tests.models.rnng.worlds import Tokens, as_batch, build_model
from treelm.models.layers.precision import matmul_precision
from treelm.models.rnng import kernels
from treelm.models.rnng.plan import StackLevels


def test_calls_grow_with_heights_and_not_with_the_batch() -> None:
    vocabulary = Tokens(9)
    model = build_model(vocabulary, num_layers=2)
    trees = random_trees(vocabulary, 40, seed=5)
    few, many = as_batch(trees, vocabulary), as_batch(trees * 4, vocabulary)
    model.packed = True
    assert num_calls(model, few) == num_calls(model, many)
    plan = model._plan(many)
    assert isinstance(plan.below, StackLevels)
    assert isinstance(plan.lstm, list)
    assert num_calls(model, many) <= 45 * len(plan.lstm) + 2 * 9 * len(plan.below.sizes) + 200


def test_low_precision_is_near_the_exact_form() -> None:
    vocabulary = Tokens(9)
    model = build_model(vocabulary, dtype=torch.float32)
    batch = as_batch(random_trees(vocabulary, 20), vocabulary)
    expected = model.losses(batch).total
    wanted = gradients(model, expected)
    model.packed = True
    with matmul_precision("bf16"):
        found = model.losses(batch).total
        near = gradients(model, found)
    torch.testing.assert_close(found, expected, rtol=2e-2, atol=0)
    for name, gradient in near.items():
        assert gradient.dtype == torch.float32
        assert float((gradient - wanted[name]).norm()) <= 0.1 * float(wanted[name].norm()) + 1e-3, name


def test_a_gpu_takes_it_and_a_cpu_does_not() -> None:
    model = build_model(Tokens(9))
    assert model.packed is None
    batch = as_batch(random_trees(Tokens(9), 3), Tokens(9))
    assert not isinstance(model._plan(batch).below, StackLevels)


@pytest.mark.gpu
def test_the_fused_cell_equals_the_plain_one(device: torch.device) -> None:
    torch.manual_seed(1)
    parts = [torch.randn(5, size) for size in (12, 12, 3)]
    gradient, d_cell = torch.randn(5, 3), torch.randn(5, 3)
    found = []
    for where in (torch.device("cpu"), device):
        from_input, from_hidden, cell = (part.to(where) for part in parts)
        hidden, new_cell, gates = kernels.cell_forward(from_input, from_hidden, cell)
        found.append(
            [hidden, new_cell, *kernels.cell_backward(gradient.to(where), d_cell.to(where), cell, new_cell, gates)]
        )
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(other.cpu(), one)
