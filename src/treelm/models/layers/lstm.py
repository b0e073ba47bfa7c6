"""The LSTM cell: its weights, its arithmetic, and the gradient of its arithmetic."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn


class LSTMWeights(nn.Module):
    """Weights of one LSTM layer: gates = ``weight_input`` x + ``weight_hidden`` h + ``bias``.

    The 4H rows are the gates i, f, o and the candidate g, in this order: the three sigmoids are contiguous.
    """

    def __init__(self, input_size: int, hidden_size: int) -> None:
        """Draw all weights from U(-1/sqrt(H), 1/sqrt(H)), as is usual for LSTMs."""
        super().__init__()
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.weight_input = nn.Parameter(torch.empty(4 * hidden_size, input_size))
        self.weight_hidden = nn.Parameter(torch.empty(4 * hidden_size, hidden_size))
        self.bias = nn.Parameter(torch.empty(4 * hidden_size))
        bound = 1 / math.sqrt(hidden_size)
        for weight in self.parameters():
            nn.init.uniform_(weight, -bound, bound)

    def forward(self, inputs: Tensor, hidden: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
        """One step for n rows: inputs (n, I), hidden and cell (n, H) -> new hidden and cell (n, H)."""
        gates = torch.addmm(inputs @ self.weight_input.T + self.bias, hidden, self.weight_hidden.T)
        return lstm_cell(gates, cell)

    def first_step(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """The step from the zero state: inputs (n, I) -> hidden and cell (n, H)."""
        gates = inputs @ self.weight_input.T + self.bias
        return lstm_cell(gates, gates.new_zeros(len(gates), self.hidden_size))


def lstm_cell(gates: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
    """New hidden and cell state (n, H) from the gates before their nonlinearity (n, 4H) and the old cell (n, H)."""
    hidden_size = cell.shape[1]
    i, f, o = gates[:, : 3 * hidden_size].sigmoid().chunk(3, 1)
    new_cell = f * cell + i * gates[:, 3 * hidden_size :].tanh()
    return o * new_cell.tanh(), new_cell
