"""An LSTM layer over trees, level by level: every row steps from the state of one row of an earlier level."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from treelm.models.layers.levels import blocks
from treelm.models.layers.lstm import LSTMWeights, lstm_cell_gradient_into, lstm_cell_into
from treelm.models.layers.precision import SLACK_ROWS, add_outer, multiply_into, operand, padded

# Legend: n rows in schedule order, of which S start; I size of an input, H of a state.

BLOCK_ROWS = 256  # a multiple of SLACK_ROWS


class _LSTMSweep(torch.autograd.Function):
    """Hand-written: each row's memory is written once, and what all rows share is one product before or after."""

    @staticmethod
    def forward(
        ctx: Any,
        inputs: Tensor,  # (n, I)
        weight_input: Tensor,  # (4H, I)
        weight_hidden: Tensor,  # (4H, H)
        bias: Tensor,
        before: Tensor,  # (n - S,)
        offsets: Sequence[int],
    ) -> Tensor:
        num_rows, size, num_starts = len(inputs), weight_hidden.shape[1], offsets[1]
        weights = operand(weight_input), operand(weight_hidden)
        gates = inputs.new_empty(num_rows, 4 * size)
        multiply_into(gates, inputs, weights[0].T, bias=bias)
        hidden, cell, tanh_cell, cell_before = (inputs.new_empty(num_rows, size) for _ in range(4))
        cell_before[:num_starts] = 0
        hidden_before = inputs.new_zeros(BLOCK_ROWS, size)
        recurrent = inputs.new_empty(BLOCK_ROWS, 4 * size)
        for start, end in blocks(offsets, BLOCK_ROWS):
            rows, num = slice(start, end), padded(end - start)
            if start >= num_starts:
                below = before[start - num_starts : end - num_starts]
                torch.index_select(cell, 0, below, out=cell_before[rows])
                torch.index_select(hidden, 0, below, out=hidden_before[: end - start])
                multiply_into(recurrent[:num], hidden_before[:num], weights[1].T)
                gates[rows] += recurrent[: end - start]
            lstm_cell_into(gates[rows], cell_before[rows], cell[rows], tanh_cell[rows], hidden[rows])
        ctx.save_for_backward(inputs, gates, tanh_cell, cell_before, hidden, before, *weights)
        ctx.offsets = offsets
        return hidden

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        inputs, gates, tanh_cell, cell_before, hidden, before, weight_input, weight_hidden = ctx.saved_tensors
        size, num_starts = tanh_cell.shape[1], ctx.offsets[1]
        d_hidden = gradients[0].clone()
        d_cell = torch.zeros_like(d_hidden)
        d_gates_padded = gates.new_empty(len(gates) + SLACK_ROWS, 4 * size)
        d_gates_padded[len(gates) :] = 0
        d_gates = d_gates_padded[: len(gates)]
        d_before_padded = gates.new_empty(BLOCK_ROWS, size)
        for start, end in reversed(blocks(ctx.offsets, BLOCK_ROWS)):
            rows, num = slice(start, end), padded(end - start)
            lstm_cell_gradient_into(
                d_gates[rows], d_cell[rows], d_hidden[rows], gates[rows], cell_before[rows], tanh_cell[rows]
            )
            if start >= num_starts:
                below = before[start - num_starts : end - num_starts]
                d_before = d_before_padded[: end - start]
                multiply_into(d_before_padded[:num], d_gates_padded[start : start + num], weight_hidden)
                d_hidden.index_add_(0, below, d_before)
                forget = gates[rows, size : 2 * size]
                d_cell.index_add_(0, below, torch.mul(d_cell[rows], forget, out=d_before))
        d_inputs = torch.empty_like(inputs)
        multiply_into(d_inputs, d_gates, weight_input)
        d_weights = gates.new_zeros(4 * size, inputs.shape[1]), gates.new_zeros(4 * size, size)
        add_outer(d_weights[0], d_gates, inputs, dtype=weight_input.dtype)
        add_outer(d_weights[1], d_gates[num_starts:], hidden.index_select(0, before), dtype=weight_hidden.dtype)
        return d_inputs, *d_weights, d_gates.sum(0), None, None


def sweep_lstm(inputs: Tensor, lstm: LSTMWeights, before: Tensor, offsets: Sequence[int]) -> Tensor:
    """Hidden states (n, H) for inputs (n, I) that stand in schedule order.

    Level k is the rows offsets[k]:offsets[k + 1]. Rows of level 0 step from the zero state, the others from the row
    that ``before`` (n - offsets[1],) names.
    """
    weights = lstm.weight_input, lstm.weight_hidden, lstm.bias
    hidden: Tensor = _LSTMSweep.apply(inputs, *weights, before, offsets)  # type: ignore[no-untyped-call]
    return hidden
