"""The LSTM layer over segments against the cell, step by step."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from treelm.models.layers.recurrent import LSTMLayer, fused_lstm


def step_by_step(
    layer: LSTMLayer, inputs: Tensor, hidden: Tensor, cell: Tensor, recurrent: Tensor
) -> tuple[Tensor, Tensor]:
    """The equations, gate by gate."""
    weights, outputs = layer.weights, []
    for x in inputs:
        gates = x @ weights.weight_input.T + hidden @ recurrent.T + weights.bias
        i, f, o, g = gates.chunk(4, 1)
        cell = torch.sigmoid(f) * cell + torch.sigmoid(i) * torch.tanh(g)
        hidden = torch.sigmoid(o) * torch.tanh(cell)
        outputs.append(hidden)
    return torch.stack(outputs), cell


@pytest.mark.parametrize(("num_steps", "num_rows"), [(1, 1), (7, 3)])
def test_outputs_and_all_gradients_equal_the_steps(num_steps: int, num_rows: int) -> None:
    torch.manual_seed(0)
    layer = LSTMLayer(3, 5).double()
    inputs = torch.randn(num_steps, num_rows, 3, dtype=torch.float64, requires_grad=True)
    hidden, cell = (torch.randn(num_rows, 5, dtype=torch.float64, requires_grad=True) for _ in range(2))
    recurrent = torch.randn(20, 5, dtype=torch.float64, requires_grad=True)
    outputs, (last, after) = layer(inputs, (hidden, cell), weight_hidden=recurrent)
    expected_outputs, expected_after = step_by_step(layer, inputs, hidden, cell, recurrent)
    torch.testing.assert_close(outputs, expected_outputs, rtol=0, atol=1e-12)
    torch.testing.assert_close(after, expected_after, rtol=0, atol=1e-12)
    factors = torch.randn_like(outputs)
    wanted = [inputs, hidden, cell, recurrent, layer.weights.weight_input, layer.weights.bias]
    found = torch.autograd.grad((outputs * factors).sum() + after.pow(2).sum() + last.sum(), wanted)
    loss = (expected_outputs * factors).sum() + expected_after.pow(2).sum() + expected_outputs[-1].sum()
    for one, other in zip(found, torch.autograd.grad(loss, wanted), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-10)


def test_the_fused_operator_has_the_outputs_and_gradients_of_the_layer() -> None:
    torch.manual_seed(0)
    layer = LSTMLayer(3, 5).double()
    inputs = torch.randn(7, 4, 3, dtype=torch.float64, requires_grad=True)
    hidden, cell = (torch.randn(4, 5, dtype=torch.float64, requires_grad=True) for _ in range(2))
    recurrent = torch.randn(20, 5, dtype=torch.float64, requires_grad=True)
    wanted = [inputs, hidden, cell, recurrent, layer.weights.weight_input, layer.weights.bias]
    factors = torch.randn(7, 4, 5, dtype=torch.float64)
    found = []
    for outputs, (last, after) in (
        layer(inputs, (hidden, cell), weight_hidden=recurrent),
        fused_lstm(inputs, (hidden, cell), layer.weights, recurrent),
    ):
        loss = (outputs * factors).sum() + after.pow(2).sum() + last.sum()
        found.append([outputs, after, *torch.autograd.grad(loss, wanted)])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-10)
