"""An LSTM over trees, level by level: every row steps from the state of one row of an earlier level."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from treelm.models.layers.lstm import lstm_cell_gradient_into, lstm_cell_into
from treelm.models.layers.precision import add_outer, multiply_into, operand


class _LSTMSweep(torch.autograd.Function):
    """Hand-written, so that each row's memory is written once and the weight's gradient is one product at the end."""

    @staticmethod
    def forward(ctx: Any, projected: Tensor, weight: Tensor, before: Tensor, offsets: Sequence[int]) -> Tensor:
        num_rows, hidden_size = len(projected), weight.shape[1]
        num_starts = offsets[1]
        multiplied = operand(weight)
        gates = torch.empty_like(projected)
        hidden, cell, tanh_cell = (projected.new_empty(num_rows, hidden_size) for _ in range(3))
        hidden_before, cell_before = (projected.new_empty(num_rows, hidden_size) for _ in range(2))
        gates[:num_starts] = projected[:num_starts]
        hidden_before[:num_starts] = cell_before[:num_starts] = 0
        for level, (start, end) in enumerate(pairwise(offsets)):
            rows = slice(start, end)
            if level > 0:
                below = before[start - num_starts : end - num_starts]
                torch.index_select(hidden, 0, below, out=hidden_before[rows])
                torch.index_select(cell, 0, below, out=cell_before[rows])
                multiply_into(gates[rows], hidden_before[rows], multiplied.T, bias=projected[rows])
            lstm_cell_into(gates[rows], cell_before[rows], cell[rows], tanh_cell[rows], hidden[rows])
        ctx.save_for_backward(gates, tanh_cell, hidden_before, cell_before, multiplied, before)
        ctx.offsets = offsets
        return hidden

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None, None]:
        gates, tanh_cell, hidden_before, cell_before, multiplied, before = ctx.saved_tensors
        (d_output,) = gradients
        hidden_size, num_starts = tanh_cell.shape[1], ctx.offsets[1]
        d_hidden, d_cell, d_gates = d_output.clone(), torch.zeros_like(d_output), torch.empty_like(gates)
        for start, end in reversed(list(pairwise(ctx.offsets))):
            rows = slice(start, end)
            lstm_cell_gradient_into(
                d_gates[rows], d_cell[rows], d_hidden[rows], gates[rows], cell_before[rows], tanh_cell[rows]
            )
            if start > 0:
                below = before[start - num_starts : end - num_starts]
                d_before = torch.empty_like(d_hidden[rows])
                multiply_into(d_before, d_gates[rows], multiplied)
                d_hidden.index_add_(0, below, d_before)
                forget = gates[rows, hidden_size : 2 * hidden_size]
                d_cell.index_add_(0, below, torch.mul(d_cell[rows], forget, out=d_before))
        d_weight = gates.new_zeros(4 * hidden_size, hidden_size)
        add_outer(d_weight, d_gates[num_starts:], hidden_before[num_starts:], dtype=multiplied.dtype)
        return d_gates, d_weight, None, None


def sweep_lstm(projected: Tensor, weight_hidden: Tensor, before: Tensor, offsets: Sequence[int]) -> Tensor:
    """Hidden states (n, H) of n rows that stand in schedule order.

    projected: W_x x + b of every row (n, 4H). weight_hidden (4H, H). Rows of level 0 step from the zero state, the
    others from the row that ``before`` (n - offsets[1],) names. Level k is the rows offsets[k]:offsets[k + 1].
    """
    hidden: Tensor = _LSTMSweep.apply(projected, weight_hidden, before, offsets)  # type: ignore[no-untyped-call]
    return hidden
