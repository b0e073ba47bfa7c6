"""The LSTM cell, its gradient, and the sweep over trees, in low precision too."""

import numpy as np
import torch

from treelm.models.layers.lstm import (
    LSTMWeights,
    lstm_cell,
    plan_tree,
    sweep_lstm,
)
from treelm.models.layers.precision import matmul_precision


def test_a_step_equals_torch_with_its_order_of_gates() -> None:
    torch.manual_seed(0)
    weights, peer = LSTMWeights(3, 4), torch.nn.LSTMCell(3, 4)

    def reordered(rows: torch.Tensor) -> torch.Tensor:
        i, f, o, g = rows.chunk(4)
        return torch.cat([i, f, g, o])

    with torch.no_grad():
        peer.weight_ih.copy_(reordered(weights.weight_input))
        peer.weight_hh.copy_(reordered(weights.weight_hidden))
        peer.bias_ih.copy_(reordered(weights.bias))
        peer.bias_hh.zero_()
    inputs, hidden, cell = torch.randn(2, 3), torch.randn(2, 4), torch.randn(2, 4)
    torch.testing.assert_close(weights(inputs, hidden, cell), peer(inputs, (hidden, cell)))


def test_a_sweep_over_a_tree_has_the_gradient_of_its_steps() -> None:
    """Rows 0 and 1 start; 2, 3 step from 0 and 4 from 1; 5 and 6 step from 3."""
    torch.manual_seed(0)
    offsets, before = np.array([0, 2, 5, 7]), np.array([0, 0, 1, 3, 3])
    inputs = torch.randn(7, 2, dtype=torch.float64, requires_grad=True)
    lstm = LSTMWeights(2, 3).double()

    def step_by_step() -> torch.Tensor:
        zero = inputs.new_zeros(3)
        states: list[tuple[torch.Tensor, torch.Tensor]] = []
        for row, below in enumerate([-1, -1, *before.tolist()]):
            h, c = states[below] if below >= 0 else (zero, zero)
            h, c = lstm(inputs[row][None], h[None], c[None])
            states.append((h[0], c[0]))
        return torch.stack([h for h, _ in states])

    found, expected = sweep_lstm(inputs, lstm, plan_tree(before, offsets, inputs.device)), step_by_step()
    torch.testing.assert_close(found, expected)
    direction = torch.randn_like(found)
    for one, other in zip(
        torch.autograd.grad(found, [inputs, *lstm.parameters()], direction),
        torch.autograd.grad(expected, [inputs, *lstm.parameters()], direction),
        strict=True,
    ):
        torch.testing.assert_close(one, other)


SIZE, BEFORE, OFFSETS = 32, [0, 0, 0, 1, 2, 2, 3, 4, 6, 8], [0, 2, 6, 10, 12]


def rounded(values: torch.Tensor) -> torch.Tensor:
    return values.bfloat16().float()


def test_bf16_rounds_operands_and_products_and_keeps_gates_and_cells() -> None:
    torch.manual_seed(0)
    lstm = LSTMWeights(SIZE, SIZE)
    tree = plan_tree(np.array(BEFORE), np.array(OFFSETS), torch.device("cpu"))
    inputs = torch.randn(OFFSETS[-1], SIZE)
    with matmul_precision("bf16"):
        found = sweep_lstm(inputs, lstm, tree)
    assert found.dtype == torch.float32
    projected = rounded(rounded(inputs) @ rounded(lstm.weight_input).T) + lstm.bias
    states: list[tuple[torch.Tensor, torch.Tensor]] = []
    for row in range(OFFSETS[-1]):
        hidden, cell = states[BEFORE[row - 2]] if row >= 2 else (torch.zeros(1, SIZE),) * 2
        gates = projected[row : row + 1] + rounded(rounded(hidden) @ rounded(lstm.weight_hidden).T)
        states.append(lstm_cell(gates, cell))
    expected = torch.cat([hidden for hidden, _ in states])
    # Sums in another order round to a neighbour here and there; rounded cells would change every one by 1e-3.
    assert (found - expected).abs().mean() < 1e-4
    assert (rounded(expected) - expected).abs().mean() > 1e-4
