"""The LSTM over trees in low precision, against rows computed one by one."""

import numpy as np
import torch

from treelm.models.layers.lstm import LSTMWeights, lstm_cell, plan_tree, sweep_lstm
from treelm.models.layers.precision import matmul_precision

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
