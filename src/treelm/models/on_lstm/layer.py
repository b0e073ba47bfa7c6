"""The ON-LSTM layer (Shen, Tan, Sordoni & Courville 2019, section 4) over whole segments, with a hand-written gradient.

Shapes: T steps, B rows, I size of an input, H of a state, C = H / chunk_size master gates. Unit u belongs to master
gate u mod C: units of one gate lie C apart, so that all gates of a row meet their units in one contiguous run.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from treelm.models.layers.graphs import GraphedFunction
from treelm.models.layers.lstm_layer import State
from treelm.models.layers.precision import column_sums, operand
from treelm.models.layers.steps import RepeatedProduct, product_as, project, running_sums


class ONLSTMWeights(nn.Module):
    """Weights of a layer; the 4H + 2C rows are the gates i, f, o, the candidate g, and the master gates i and f."""

    def __init__(self, input_size: int, hidden_size: int, chunk_size: int) -> None:
        """Draw all weights from U(-1/sqrt(H), 1/sqrt(H)). H must be a multiple of ``chunk_size``."""
        super().__init__()
        self.input_size, self.hidden_size, self.chunk_size = input_size, hidden_size, chunk_size
        num_gates = 4 * hidden_size + 2 * (hidden_size // chunk_size)
        self.weight_input = nn.Parameter(torch.empty(num_gates, input_size))
        self.weight_hidden = nn.Parameter(torch.empty(num_gates, hidden_size))
        self.bias = nn.Parameter(torch.empty(num_gates))
        bound = 1 / math.sqrt(hidden_size)
        for weight in self.parameters():
            nn.init.uniform_(weight, -bound, bound)


class ONLSTMLayer(nn.Module):
    """One ON-LSTM layer over T steps."""

    def __init__(self, input_size: int, hidden_size: int, chunk_size: int) -> None:
        """Draw the weights as ``ONLSTMWeights`` does."""
        super().__init__()
        self.weights = ONLSTMWeights(input_size, hidden_size, chunk_size)
        self._run = GraphedFunction(_ONLSTMLayer.apply)

    def forward(
        self, inputs: Tensor, state: State, *, weight_hidden: Tensor | None = None
    ) -> tuple[Tensor, State, Tensor]:
        """inputs (T, B, I) and the state before -> outputs (T, B, H), the state after, and distances (T, B).

        The distance is 1 - the mean of the master forget gates (section 5.1); it has no gradient.
        ``weight_hidden`` (4H + 2C, H) stands in for the recurrent weight, for example with dropout.
        """
        weights = self.weights
        recurrent = weights.weight_hidden if weight_hidden is None else weight_hidden
        outputs, cell, distances = self._run(inputs, *state, weights.weight_input, recurrent, weights.bias)
        return outputs, (outputs[-1], cell), distances


@dataclass(frozen=True)
class _Tape:
    """What the gradient of the cell needs, of all steps or one: the values of each name, (T, B, ...) or (B, ...)."""

    gates: Tensor  # (4H + 2C) sigmoids i, f, o, tanh of g, and the master gates before cumax
    shares: Tensor  # (2, C) softmax of the master gates
    masters: Tensor  # (2, C) i~ and f~
    overlap: Tensor  # (C) w
    ordered: Tensor  # (2, H) i and f as they act on the cell
    tanh_cell: Tensor  # (H)

    @classmethod
    def empty(cls, gates: Tensor, size: int) -> _Tape:
        num_steps, num_rows, num_gates = gates.shape
        num_masters = (num_gates - 4 * size) // 2
        rest = ((2, num_masters), (2, num_masters), (num_masters,), (2, size), (size,))
        return cls(gates, *(gates.new_empty(num_steps, num_rows, *shape) for shape in rest))

    def tensors(self) -> tuple[Tensor, ...]:
        return self.gates, self.shares, self.masters, self.overlap, self.ordered, self.tanh_cell

    def steps(self) -> list[_Tape]:
        return [_Tape(*step) for step in zip(*(tensor.unbind() for tensor in self.tensors()), strict=True)]


def _cell_into(tape: _Tape, cell_before: Tensor, cell: Tensor, hidden: Tensor) -> None:
    """One step (Eqs. 6-14): fills all of ``tape`` but the gates, which leave after their nonlinearity."""
    num_rows, size = cell.shape
    gates, masters = tape.gates, tape.masters
    num_masters = masters.shape[2]
    torch.softmax(gates[:, 4 * size :].view(num_rows, 2, num_masters), 2, out=tape.shares)
    running_sums(tape.shares, out=masters)
    masters[:, 0].neg_().add_(1)
    torch.mul(masters[:, 0], masters[:, 1], out=tape.overlap)
    candidate = gates[:, 3 * size : 4 * size]
    candidate.mul_(2)  # tanh(x) = 2 sigmoid(2x) - 1, as in lstm_cell_into
    gates[:, : 4 * size].sigmoid_()
    candidate.mul_(2).sub_(1)
    beyond = masters - tape.overlap[:, None]
    chunked = gates[:, : 2 * size].view(num_rows, 2, -1, num_masters)
    out = tape.ordered.view(chunked.shape)
    torch.addcmul(beyond[:, :, None], chunked, tape.overlap[:, None, None], out=out)
    torch.mul(tape.ordered[:, 1], cell_before, out=cell)
    cell.addcmul_(tape.ordered[:, 0], candidate)
    torch.mul(cell, 2, out=tape.tanh_cell)
    tape.tanh_cell.sigmoid_().mul_(2).sub_(1)
    torch.mul(gates[:, 2 * size : 3 * size], tape.tanh_cell, out=hidden)


def _cell_gradient_into(d_gates: Tensor, d_cell: Tensor, d_hidden: Tensor, tape: _Tape, cell_before: Tensor) -> None:
    """The gradient of ``_cell_into``: fills ``d_gates``; ``d_cell``, of the new cell, becomes that of the old one."""
    num_rows, size = d_cell.shape
    num_masters = tape.masters.shape[2]
    o, g = tape.gates[:, 2 * size : 3 * size], tape.gates[:, 3 * size : 4 * size]
    through_tanh = d_hidden * o
    d_cell += _tanh_backward(through_tanh, tape.tanh_cell, grad_input=through_tanh)
    torch.mul(d_hidden, tape.tanh_cell, out=d_gates[:, 2 * size : 3 * size])
    torch.mul(d_cell, tape.ordered[:, 0], out=d_gates[:, 3 * size : 4 * size])
    d_ordered = torch.empty_like(tape.ordered)
    torch.mul(d_cell, g, out=d_ordered[:, 0])
    torch.mul(d_cell, cell_before, out=d_ordered[:, 1])
    d_cell *= tape.ordered[:, 1]
    d_chunked = d_ordered.view(num_rows, 2, -1, num_masters)
    inner = tape.gates[:, : 2 * size].view(d_chunked.shape)
    d_masters = d_chunked.sum(2)
    d_overlap = (d_chunked * inner).flatten(1, 2).sum(1) - d_masters.sum(1)
    torch.mul(d_chunked, tape.overlap[:, None, None], out=d_gates[:, : 2 * size].view(d_chunked.shape))
    d_masters.addcmul_(d_overlap[:, None], tape.masters.flip(1))
    _cumax_gradient_into(d_gates[:, 4 * size :].view(num_rows, 2, num_masters), d_masters, tape.shares)
    sigmoids, d_g = d_gates[:, : 3 * size], d_gates[:, 3 * size : 4 * size]
    _sigmoid_backward(sigmoids, tape.gates[:, : 3 * size], grad_input=sigmoids)
    _tanh_backward(d_g, g, grad_input=d_g)


def _cumax_gradient_into(out: Tensor, d_masters: Tensor, shares: Tensor) -> None:
    """From the gradient of i~ and f~ to that of the master gates, (B, 2, C) each.

    That of the softmax's k-th share is the sum of those from k on; adding a constant to it changes nothing, so the sum
    of those before k is subtracted from 0 instead.
    """
    d_shares = d_masters - running_sums(d_masters)
    d_shares[:, 0].neg_()
    torch.mul(shares, d_shares - (shares * d_shares).sum(2, keepdim=True), out=out)


_sigmoid_backward = torch.ops.aten.sigmoid_backward.grad_input
_tanh_backward = torch.ops.aten.tanh_backward.grad_input


class _ONLSTMLayer(torch.autograd.Function):
    """The products with inputs, and all gradients of weights, are one product each, before or after the steps."""

    @staticmethod
    def forward(
        ctx: Any,
        inputs: Tensor,  # (T, B, I)
        hidden: Tensor,  # (B, H)
        cell: Tensor,  # (B, H)
        weight_input: Tensor,  # (4H + 2C, I)
        weight_hidden: Tensor,  # (4H + 2C, H)
        bias: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor]:
        num_steps, num_rows, size = *inputs.shape[:2], hidden.shape[1]
        weights = operand(weight_input), operand(weight_hidden)
        flat = inputs.flatten(0, 1).to(weights[0].dtype)
        gates = project(flat, weights[0], bias).view(num_steps, num_rows, -1)
        multiply = RepeatedProduct(weights[1], num_rows=num_rows)
        hiddens, cells = (bias.new_empty(num_steps + 1, num_rows, size) for _ in range(2))
        hiddens[0], cells[0] = hidden, cell
        multiplied = hiddens.to(weights[1].dtype)  # the same tensor, unless the precision is another
        tape = _Tape.empty(gates, size)
        for t, step in enumerate(tape.steps()):
            step.gates.add_(multiply(multiplied[t]))
            _cell_into(step, cells[t], cells[t + 1], hiddens[t + 1])
            if multiplied is not hiddens:
                multiplied[t + 1] = hiddens[t + 1]
        ctx.save_for_backward(flat, multiplied, cells, *weights, *tape.tensors())
        distances = 1 - tape.masters[:, :, 1].mean(2)
        ctx.mark_non_differentiable(distances)
        return hiddens[1:], cells[-1], distances

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, ...]:
        flat, multiplied, cells, weight_input, weight_hidden, *saved = ctx.saved_tensors
        tape = _Tape(*saved)
        d_outputs, d_cell = gradients[0], gradients[1].clone()
        num_steps, num_rows, _ = tape.tanh_cell.shape
        multiply = RepeatedProduct(weight_hidden.T, num_rows=num_rows)
        d_gates = torch.empty_like(tape.gates)
        d_multiplied = d_gates.to(weight_hidden.dtype)
        d_hidden = torch.zeros_like(cells[0])
        for t, step in reversed(list(enumerate(tape.steps()))):
            d_hidden = d_outputs[t] + d_hidden
            _cell_gradient_into(d_gates[t], d_cell, d_hidden, step, cells[t])
            if d_multiplied is not d_gates:
                d_multiplied[t] = d_gates[t]
            d_hidden = multiply(d_multiplied[t])
        d_flat = d_multiplied.flatten(0, 1)
        d_inputs = product_as(d_gates, d_flat, weight_input).view(num_steps, num_rows, -1)
        d_weight_input = product_as(d_gates, d_flat.T, flat)
        d_weight_hidden = product_as(d_gates, d_flat.T, multiplied[:-1].flatten(0, 1))
        return d_inputs, d_hidden.to(d_cell.dtype), d_cell, d_weight_input, d_weight_hidden, column_sums(d_gates)
