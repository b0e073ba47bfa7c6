"""The LSTM: its weights, its cell with a hand-written gradient, and a layer of it over trees.

The layer over trees is computed level by level: every row steps from the state of one row of the level before, as the
items of stacks do, each from the item below. Rows that step from the same row share its product with the hidden
weights, and rows that read the same input share its product with the input weights: each product is computed once.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from treelm.models.layers.levels import block_rows
from treelm.models.layers.packed_weights import LevelProduct
from treelm.models.layers.precision import (
    SLACK_ROWS,
    add_outer,
    gather_into,
    multiply_into,
    operand,
    padded,
    sum_of_rows,
)

BLOCK_ROWS = 256  # parents a block, a multiple of SLACK_ROWS; a block has the rows that step from them


def uniform(*shape: int, fan_in: int) -> nn.Parameter:
    """A parameter drawn from U(-1/sqrt(fan_in), 1/sqrt(fan_in))."""
    bound = 1 / math.sqrt(fan_in)
    return nn.Parameter(torch.empty(*shape).uniform_(-bound, bound))


class GateWeights(nn.Module):
    """Weights of one recurrent layer: gates = ``weight_input`` x + ``weight_hidden`` h + ``bias``."""

    def __init__(self, input_size: int, hidden_size: int, num_gates: int) -> None:
        """Draw all weights from U(-1/sqrt(H), 1/sqrt(H)), as is usual for LSTMs; ``num_gates`` counts their rows."""
        super().__init__()
        self.input_size, self.hidden_size = input_size, hidden_size
        self.weight_input = uniform(num_gates, input_size, fan_in=hidden_size)
        self.weight_hidden = uniform(num_gates, hidden_size, fan_in=hidden_size)
        self.bias = uniform(num_gates, fan_in=hidden_size)


class LSTMWeights(GateWeights):
    """Weights of one LSTM layer.

    Its 4H rows are the gates i, f, o and the candidate g, in this order, so that the three sigmoids are contiguous.
    """

    def __init__(self, input_size: int, hidden_size: int) -> None:
        """Draw the weights as ``GateWeights`` does."""
        super().__init__(input_size, hidden_size, 4 * hidden_size)

    def forward(self, inputs: Tensor, hidden: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
        """One step for n rows: inputs (n, I), hidden and cell (n, H) -> new hidden and cell (n, H)."""
        gates = torch.addmm(inputs @ self.weight_input.T + self.bias, hidden, self.weight_hidden.T)
        return lstm_cell(gates, cell)


def lstm_cell(gates: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
    """New hidden and cell state (n, H) from the gates before their nonlinearity (n, 4H) and the old cell (n, H)."""
    hidden_size = cell.shape[1]
    i, f, o = gates[:, : 3 * hidden_size].sigmoid().chunk(3, 1)
    new_cell = f * cell + i * gates[:, 3 * hidden_size :].tanh()
    return o * new_cell.tanh(), new_cell


def lstm_cell_into(gates: Tensor, cell_before: Tensor, cell: Tensor, tanh_cell: Tensor, hidden: Tensor) -> None:
    """The cell for hand-written gradients: fills ``cell``, ``tanh_cell`` and ``hidden``, (n, H) each.

    ``gates`` (n, 4H) are given before their nonlinearity, which is applied in place. All of these are what
    ``lstm_cell_gradient_into`` needs.
    """
    i, f, o, g = gates.chunk(4, 1)
    g.mul_(2)
    gates.sigmoid_()
    twice_minus_one(g)
    torch.mul(i, g, out=cell)
    cell.addcmul_(f, cell_before)
    tanh_into(tanh_cell, cell)
    torch.mul(o, tanh_cell, out=hidden)


def lstm_cell_gradient_into(
    d_gates: Tensor, d_cell: Tensor, d_hidden: Tensor, gates: Tensor, cell_before: Tensor, tanh_cell: Tensor
) -> None:
    """The gradient of ``lstm_cell_into``: fills ``d_gates`` (n, 4H), by the gates before their nonlinearity.

    ``d_cell`` (n, H) is given as the gradient from later steps and becomes the whole gradient by the new cell; the
    gradient by the old cell is ``d_cell`` times the forget gate.
    """
    size = d_cell.shape[1]
    i, _, o, g = gates.chunk(4, 1)
    d_i, d_f, d_o, d_g = d_gates.chunk(4, 1)
    torch.mul(d_hidden, o, out=d_i)  # as scratch, until d_cell is known
    _tanh_backward(d_i, tanh_cell, grad_input=d_i)
    d_cell.add_(d_i)
    torch.mul(d_cell, g, out=d_i)
    torch.mul(d_cell, cell_before, out=d_f)
    torch.mul(d_hidden, tanh_cell, out=d_o)
    torch.mul(d_cell, i, out=d_g)
    sigmoids = d_gates[:, : 3 * size]
    _sigmoid_backward(sigmoids, gates[:, : 3 * size], grad_input=sigmoids)
    _tanh_backward(d_g, g, grad_input=d_g)


_sigmoid_backward = torch.ops.aten.sigmoid_backward.grad_input
_tanh_backward = torch.ops.aten.tanh_backward.grad_input


def tanh_into(out: Tensor, inputs: Tensor) -> None:
    """out = tanh(inputs), on a CPU by 2 sigmoid(2x) - 1, which is several times faster and accurate to an ulp of 1."""
    if inputs.device.type == "cpu":
        torch.mul(inputs, 2, out=out)
        twice_minus_one(out.sigmoid_())
    else:
        torch.tanh(inputs, out=out)


def twice_minus_one(values: Tensor) -> None:
    """2x - 1 in place, in one pass."""
    torch.add(_MINUS_ONE, values, alpha=2, out=values)


_MINUS_ONE = torch.tensor(-1.0)  # on a CPU: a single number may be combined with tensors on any device


# Legend of what follows: n rows in schedule order, of which S start; P parents, rows that others step from; m different
# inputs; I size of an input, H of a state.


class Predecessors(NamedTuple):
    """The rows from which all rows step, ready for computing."""

    parents: Tensor  # (P,) the rows from which others step
    parent: Tensor  # (n,) for every row: the number of its parent among these; 0 for rows that start
    blocks: list[tuple[int, int, int, int]]  # first row and end of each block, first parent and end


def plan_tree(before: NDArray[np.int64], offsets: NDArray[np.int64], device: torch.device) -> Predecessors:
    """Plan ``sweep_lstm`` for rows where level k is offsets[k]:offsets[k + 1]; the S rows of level 0 start.

    ``before`` (n - S,) is the row from which each other row steps; it must not descend. Tensors are on the CPU until
    ``plan_to_device`` moves them.
    """
    num_starts, num_rows = int(offsets[1]), int(offsets[-1])
    most = block_rows(device, BLOCK_ROWS)
    is_first = np.diff(before, prepend=-1) > 0
    parent = np.zeros(num_rows, np.int64)
    parent[num_starts:] = np.cumsum(is_first) - 1
    first_child = np.append(np.flatnonzero(is_first) + num_starts, num_rows)
    blocks = [(row, min(row + most, num_starts), 0, 0) for row in range(0, num_starts, most)]
    for first, end in pairwise(np.searchsorted(first_child, offsets[1:]).tolist()):
        for start in range(first, end, most):
            stop = min(start + most, end)
            blocks.append((int(first_child[start]), int(first_child[stop]), start, stop))
    return Predecessors(torch.from_numpy(before[is_first]), torch.from_numpy(parent), blocks)


def _longest(tree: Predecessors) -> int:
    """The most parents of a block, padded."""
    return padded(max((stop - first for _, _, first, stop in tree.blocks), default=0))


class _LSTMSweep(torch.autograd.Function):
    """Hand-written: each row is written once, and what all rows share is one product before or after the levels."""

    @staticmethod
    def forward(
        ctx: Any,
        inputs: Tensor,  # (m, I)
        weight_input: Tensor,  # (4H, I)
        weight_hidden: Tensor,  # (4H, H)
        bias: Tensor,
        tree: Predecessors,
        read: Tensor | None,  # (n,) the input of each row; None when they are the rows
    ) -> Tensor:
        num_rows, size, new = len(tree.parent), weight_hidden.shape[1], inputs.new_empty
        weights = operand(weight_input), operand(weight_hidden)
        seen = inputs.to(weights[0].dtype)  # the same tensor, unless the precision is another
        projected = new(len(inputs), 4 * size)
        multiply_into(projected, seen, weights[0].T, bias=bias)
        gates = projected if read is None else new(num_rows, 4 * size)
        hidden, cell, tanh_cell, cell_before = (new(num_rows, size) for _ in range(4))
        hidden_before = weights[1].new_zeros(len(tree.parents) + SLACK_ROWS, size)
        recurrent, multiply = new(_longest(tree), 4 * size), LevelProduct(weights[1])
        for start, end, first, stop in tree.blocks:
            rows, num = slice(start, end), padded(stop - first)
            if read is not None:
                torch.index_select(projected, 0, read[rows], out=gates[rows])
            if num == 0:
                cell_before[rows] = 0
            else:
                parent = tree.parent[rows]
                gather_into(hidden_before[first:stop], hidden, tree.parents[first:stop])
                multiply.into(recurrent[:num], hidden_before[first : first + num])
                gates[rows] += recurrent.index_select(0, parent - first)
                torch.index_select(cell, 0, tree.parents.index_select(0, parent), out=cell_before[rows])
            lstm_cell_into(gates[rows], cell_before[rows], cell[rows], tanh_cell[rows], hidden[rows])
        ctx.save_for_backward(seen, gates, tanh_cell, cell_before, hidden_before, *weights)
        ctx.tree, ctx.read = tree, read
        return hidden

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        inputs, gates, tanh_cell, cell_before, hidden_before, weight_input, weight_hidden = ctx.saved_tensors
        tree, read, size, new = ctx.tree, ctx.read, tanh_cell.shape[1], gates.new_empty
        d_hidden = gradients[0].clone()
        d_cell = torch.zeros_like(d_hidden)
        # Gradients are stored in the precision in which they are multiplied or, if they are first summed, of the gates.
        if read is None:
            d_projected = torch.empty_like(gates, dtype=inputs.dtype)
        else:
            d_projected = gates.new_zeros(len(inputs), 4 * size)
        is_multiplied = read is None and d_projected.dtype == gates.dtype
        d_recurrent = weight_hidden.new_empty(len(tree.parents) + SLACK_ROWS, 4 * size)
        d_recurrent[len(tree.parents) :] = 0
        longest, multiply = _longest(tree), LevelProduct(weight_hidden.T)
        d_before, d_summed = new(longest, size), new(longest, 4 * size)
        for start, end, first, stop in reversed(tree.blocks):
            rows = slice(start, end)
            d_gates = d_projected[rows] if is_multiplied else new(end - start, 4 * size)
            states = gates[rows], cell_before[rows], tanh_cell[rows]
            lstm_cell_gradient_into(d_gates, d_cell[rows], d_hidden[rows], *states)
            if read is not None:
                d_projected.index_add_(0, read[rows], d_gates)
            elif not is_multiplied:
                d_projected[rows] = d_gates
            if stop > first:
                parent, num = tree.parent[rows], padded(stop - first)
                d_parents = d_recurrent[first:stop]
                summed = d_parents if d_parents.dtype == gates.dtype else d_summed[: stop - first]
                summed.zero_().index_add_(0, parent - first, d_gates)
                if summed is not d_parents:
                    d_parents.copy_(summed)
                multiply.into(d_before[:num], d_recurrent[first : first + num])
                d_hidden.index_add_(0, tree.parents[first:stop], d_before[: stop - first])
                d_cell_before = d_cell[rows] * gates[rows, size : 2 * size]
                d_cell.index_add_(0, tree.parents.index_select(0, parent), d_cell_before)
        d_bias, d_projected = sum_of_rows(d_projected, like=gates), d_projected.to(inputs.dtype)
        d_inputs = new(inputs.shape)
        multiply_into(d_inputs, d_projected, weight_input)
        d_weights = gates.new_zeros(4 * size, inputs.shape[1]), gates.new_zeros(4 * size, size)
        add_outer(d_weights[0], d_projected, inputs, dtype=weight_input.dtype)
        num_parents, dtype = len(tree.parents), weight_hidden.dtype
        add_outer(d_weights[1], d_recurrent[:num_parents], hidden_before[:num_parents], dtype=dtype)
        return d_inputs, *d_weights, d_bias, None, None


def sweep_lstm(inputs: Tensor, lstm: LSTMWeights, tree: Predecessors, read: Tensor | None = None) -> Tensor:
    """Hidden states (n, H) of rows in schedule order.

    Row r reads inputs[r] or, if ``read`` (n,) is given, inputs[read[r]]; inputs (m, I).
    """
    weights = lstm.weight_input, lstm.weight_hidden, lstm.bias
    hidden: Tensor = _LSTMSweep.apply(inputs, *weights, tree, read)  # type: ignore[no-untyped-call]
    return hidden
