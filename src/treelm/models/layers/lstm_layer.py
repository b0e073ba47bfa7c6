"""An LSTM layer over whole segments, with a hand-written gradient.

Shapes: T steps, B rows, I size of an input, H of a state.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from treelm.models.layers.graphs import GraphedFunction
from treelm.models.layers.lstm import LSTMWeights, lstm_cell_gradient_into, lstm_cell_into
from treelm.models.layers.precision import operand
from treelm.models.layers.steps import RepeatedProduct, product_as, project

State = tuple[Tensor, Tensor]
"""Hidden and cell state, (B, H) each."""


class LSTMLayer(nn.Module):
    """One LSTM layer over T steps."""

    def __init__(self, input_size: int, hidden_size: int) -> None:
        """Draw the weights as ``LSTMWeights`` does."""
        super().__init__()
        self.weights = LSTMWeights(input_size, hidden_size)
        self._run = GraphedFunction(_LSTMLayer.apply)

    def forward(self, inputs: Tensor, state: State, *, weight_hidden: Tensor | None = None) -> tuple[Tensor, State]:
        """inputs (T, B, I) and the state before them -> outputs (T, B, H) and the state after them.

        ``weight_hidden`` (4H, H) stands in for the recurrent weight, for example with dropout. Products are computed in
        the current ``matmul_precision``; there is no second derivative.
        """
        weights = self.weights
        recurrent = weights.weight_hidden if weight_hidden is None else weight_hidden
        outputs, cell = self._run(inputs, *state, weights.weight_input, recurrent, weights.bias)
        return outputs, (outputs[-1], cell)


class _LSTMLayer(torch.autograd.Function):
    """The products with inputs, and all gradients of weights, are one product each, before or after the steps."""

    @staticmethod
    def forward(
        ctx: Any,
        inputs: Tensor,  # (T, B, I)
        hidden: Tensor,  # (B, H)
        cell: Tensor,  # (B, H)
        weight_input: Tensor,  # (4H, I)
        weight_hidden: Tensor,  # (4H, H)
        bias: Tensor,
    ) -> tuple[Tensor, Tensor]:
        num_steps, num_rows, size = *inputs.shape[:2], hidden.shape[1]
        weights = operand(weight_input), operand(weight_hidden)
        flat = inputs.flatten(0, 1).to(weights[0].dtype)
        gates = project(flat, weights[0], bias).view(num_steps, num_rows, -1)
        multiply = RepeatedProduct(weights[1], num_rows=num_rows)
        hiddens, cells = (bias.new_empty(num_steps + 1, num_rows, size) for _ in range(2))
        tanh_cells = torch.empty_like(cells[1:])
        hiddens[0], cells[0] = hidden, cell
        multiplied = hiddens.to(weights[1].dtype)  # the same tensor, unless the precision is another
        for t, step in enumerate(gates):
            step += multiply(multiplied[t])
            lstm_cell_into(step, cells[t], cells[t + 1], tanh_cells[t], hiddens[t + 1])
            if multiplied is not hiddens:
                multiplied[t + 1] = hiddens[t + 1]
        ctx.save_for_backward(flat, gates, multiplied, cells, tanh_cells, *weights)
        return hiddens[1:], cells[-1]

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, ...]:
        flat, gates, multiplied, cells, tanh_cells, weight_input, weight_hidden = ctx.saved_tensors
        d_outputs, d_cell = gradients[0], gradients[1].clone()
        num_steps, num_rows, size = tanh_cells.shape
        multiply = RepeatedProduct(weight_hidden.T, num_rows=num_rows)
        d_gates = torch.empty_like(gates)
        d_multiplied = d_gates.to(weight_hidden.dtype)
        d_hidden = torch.zeros_like(cells[0])
        for t in reversed(range(num_steps)):
            d_hidden = d_outputs[t] + d_hidden
            lstm_cell_gradient_into(d_gates[t], d_cell, d_hidden, gates[t], cells[t], tanh_cells[t])
            d_cell *= gates[t, :, size : 2 * size]
            if d_multiplied is not d_gates:
                d_multiplied[t] = d_gates[t]
            d_hidden = multiply(d_multiplied[t])
        d_flat = d_multiplied.flatten(0, 1)
        d_inputs = product_as(gates, d_flat, weight_input).view(num_steps, num_rows, -1)
        d_weight_input = product_as(gates, d_flat.T, flat)
        d_weight_hidden = product_as(gates, d_flat.T, multiplied[:-1].flatten(0, 1))
        return d_inputs, d_hidden.to(d_cell.dtype), d_cell, d_weight_input, d_weight_hidden, d_gates.sum((0, 1))
