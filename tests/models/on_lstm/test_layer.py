"""The ON-LSTM layer against its equations."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tests.models.on_lstm.plain import plain_step
from treelm.models.layers.precision import matmul_precision
from treelm.models.on_lstm.kernels import ONLSTMLayer


def plain_layer(layer: ONLSTMLayer, inputs: Tensor, hidden: Tensor, cell: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    weights = layer.weights
    rows = []
    for b in range(inputs.shape[1]):
        h, c, steps = hidden[b], cell[b], []
        for x in inputs[:, b]:
            h, c, forget = plain_step(
                x, h, c, weights.weight_input, weights.weight_hidden, weights.bias, layer.chunk_size
            )
            steps.append((h, c, 1 - forget.mean()))
        rows.append([torch.stack(values) for values in zip(*steps, strict=True)])
    outputs, cells, distances = (torch.stack(values, 1) for values in zip(*rows, strict=True))
    return outputs, cells[-1], distances


@pytest.mark.parametrize(("num_steps", "num_rows", "size", "chunk"), [(1, 1, 4, 2), (6, 3, 12, 3), (5, 2, 5, 5)])
def test_outputs_and_all_gradients_equal_the_plain_form(num_steps: int, num_rows: int, size: int, chunk: int) -> None:
    torch.manual_seed(0)
    layer = ONLSTMLayer(3, size, chunk).double()
    for parameter in layer.parameters():
        parameter.data = torch.randn_like(parameter)
    inputs = torch.randn(num_steps, num_rows, 3, dtype=torch.float64, requires_grad=True)
    state = [torch.randn(num_rows, size, dtype=torch.float64, requires_grad=True) for _ in range(2)]
    fast, (last, cell), distances = layer(inputs, (state[0], state[1]))
    plain, plain_cell, plain_distances = plain_layer(layer, inputs, *state)
    for one, other in ((fast, plain), (last, plain[-1]), (cell, plain_cell), (distances, plain_distances)):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12)
    factors = torch.randn_like(fast), torch.randn_like(cell)
    wanted = [inputs, *state, *layer.parameters()]
    found = torch.autograd.grad((fast * factors[0]).sum() + (cell * factors[1]).sum() + last.sum(), wanted)
    expected = torch.autograd.grad(
        (plain * factors[0]).sum() + (plain_cell * factors[1]).sum() + plain[-1].sum(), wanted
    )
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-10)


@pytest.mark.isa
@pytest.mark.parametrize(("precision", "tolerance"), [("fp32", 1e-5), ("bf16", 0.05)])
def test_lower_precisions_are_near(precision: str, tolerance: float) -> None:
    torch.manual_seed(0)
    layer = ONLSTMLayer(8, 20, 5)
    inputs = torch.randn(7, 4, 8, requires_grad=True)
    exact = ONLSTMLayer(8, 20, 5).double()
    exact.load_state_dict(layer.state_dict())
    wide = inputs.detach().double().requires_grad_()
    expected = exact(wide, (wide.new_zeros(4, 20), wide.new_zeros(4, 20)))[0]
    with matmul_precision(precision):  # type: ignore[arg-type]
        found = layer(inputs, (inputs.new_zeros(4, 20), inputs.new_zeros(4, 20)))[0]
    found.sum().backward()
    expected.sum().backward()
    torch.testing.assert_close(found.double(), expected, rtol=0, atol=tolerance)
    torch.testing.assert_close(inputs.grad.double(), wide.grad, rtol=0, atol=tolerance)
    for one, other in zip(layer.parameters(), exact.parameters(), strict=True):
        scale = other.grad.abs().max()
        torch.testing.assert_close(one.grad.double() / scale, other.grad / scale, rtol=0, atol=tolerance)
