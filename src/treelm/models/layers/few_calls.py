"""Layers in few large calls: for a GPU, where starting a kernel takes longer than what most kernels compute.

``library_lstm`` is torch's own LSTM, which on a GPU is one call for all steps (cuDNN). ``run_stack`` computes an LSTM
over stacks by their height: an item of height k lies on one of height k - 1, so the items of one height need only the
states of the height below, and take one product and one cell. On a CPU ``lstm.sweep_lstm`` computes the same, with each
product computed once.

The weights of ``LSTMWeights`` have the gates in the order i, f, o, g; the library's order is i, f, g, o.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from treelm.models.layers.devices import few_calls
from treelm.models.layers.levels import Forest, plan_forest
from treelm.models.layers.lstm import LSTMWeights, Predecessors, sweep_lstm
from treelm.models.layers.precision import gather_into, linear, operand, product, setting

FusedKernels = Literal["none", "level", "forest"]
_fused: ContextVar[FusedKernels] = ContextVar("fused_kernels", default="none")


def fused_kernels(which: FusedKernels) -> AbstractContextManager[None]:
    """Within this context, make plans for the kernels of ``fused.py``: one launch a level, one a forest, or none."""
    return setting(_fused, which)


def kernels_wanted() -> FusedKernels:
    """The fused kernels for which plans are made in this context."""
    return _fused.get()


def library_gates(rows: Tensor) -> Tensor:
    """Rows of gates (4H, ...) in the library's order, from those in the order of ``LSTMWeights``."""
    i, f, o, g = rows.chunk(4, 0)
    return torch.cat([i, f, g, o])


def library_buffer(*directions: tuple[Tensor, Tensor, Tensor]) -> tuple[Tensor, list[torch.Size]]:
    """The weights of one LSTM, or of two directions, in one buffer, and the shapes of its parts.

    A direction has the weights of the input and of the state, and a bias, as ``LSTMWeights`` has them. The parts are in
    cuDNN's order, matrices first, then biases, of which the second is zero; in another order a GPU would copy them at
    every call.
    """
    ordered = [[library_gates(part) for part in direction] for direction in directions]
    parts = [matrix for *matrices, _ in ordered for matrix in matrices]
    parts += [one for *_, bias in ordered for one in (bias, torch.zeros_like(bias))]
    return torch.cat([part.reshape(-1) for part in parts]), [part.shape for part in parts]


def weights_in(buffer: Tensor, shapes: Sequence[torch.Size]) -> list[Tensor]:
    """The weights that ``library_lstm`` takes, as slices of a ``library_buffer``."""
    sizes = [shape.numel() for shape in shapes]
    pieces = [piece.view(shape) for piece, shape in zip(torch.split(buffer, sizes), shapes, strict=True)]
    matrices, biases = pieces[: len(pieces) // 2], pieces[len(pieces) // 2 :]
    return [one for k in range(0, len(matrices), 2) for one in (*matrices[k : k + 2], *biases[k : k + 2])]


def library_weights(*directions: tuple[Tensor, Tensor, Tensor], as_operands: bool = True) -> list[Tensor]:
    """The weights that ``library_lstm`` takes, of one LSTM or of two directions (see ``library_buffer``)."""
    buffer, shapes = library_buffer(*directions)
    return weights_in(operand(buffer) if as_operands else buffer, shapes)


def library_lstm(
    inputs: Tensor, state: tuple[Tensor, Tensor], weights: list[Tensor], batch_sizes: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Outputs, and the last hidden and cell states (directions, B, H), from the states before, in one call.

    Inputs are (T, B, I) or, with ``batch_sizes`` (T,), packed rows (n, I), where the longest sequence is the first.
    Outputs have the same form.
    """
    trains, both = torch.is_grad_enabled(), len(weights) > 4
    found: tuple[Tensor, Tensor, Tensor]
    if batch_sizes is None:
        found = torch._VF.lstm(inputs, state, weights, True, 1, 0.0, trains, both, False)
    else:
        found = torch._VF.lstm(inputs, batch_sizes, state, weights, True, 1, 0.0, trains, both)
    return found


class StackLevels(NamedTuple):
    """Rows by the height of their stacks: rows of level k step from rows of level k - 1."""

    sizes: list[int]  # number of rows of each level
    below: Sequence[Tensor]  # for each level but the first: the row below each row, counted within the level before


class Taped(NamedTuple):
    """What a stack LSTM has computed before, by row."""

    below: Tensor  # (n - S,) the row below each row of level 1 and more, counted over all rows
    hidden: Tensor  # (n, H)
    cell: Tensor  # (n, H)
    gates: Tensor  # (n, 4H) as ``cell_forward`` gives them


def plan_stack(below: NDArray[np.int64], offsets: NDArray[np.int64]) -> StackLevels | Forest:
    """Plan ``run_stack`` for stacks where level k, the items of height k, is the rows offsets[k]:offsets[k + 1].

    ``below`` (n - S,) is the row below each row, counted over all rows, without the S rows of level 0.
    """
    if kernels_wanted() != "none":
        return plan_forest(below, offsets, is_whole=kernels_wanted() == "forest")
    return plan_levels(below, offsets)


def plan_levels(below: NDArray[np.int64], offsets: NDArray[np.int64]) -> StackLevels:
    """Plan the same without fused kernels."""
    within = below - np.repeat(offsets[:-2], np.diff(offsets[1:]))
    sizes = np.diff(offsets).tolist()
    return StackLevels(sizes, list(torch.split(torch.from_numpy(within), sizes[1:])))


class _StackSweep(torch.autograd.Function):
    """The stack LSTM, level by level; the gradient of its weights is one product after the sweep."""

    @staticmethod
    def forward(ctx: Any, projected: Tensor, weight_hidden: Tensor, levels: StackLevels, taped: Taped | None) -> Tensor:
        if taped is not None:
            return _StackSweep._taken_over(ctx, operand(weight_hidden), levels, taped)
        weight, parts = operand(weight_hidden), torch.split(projected, levels.sizes)
        hidden = cell_before = projected.new_zeros(levels.sizes[0], weight.shape[1])
        hidden_before = weight.new_empty(len(projected) - levels.sizes[0], weight.shape[1])
        outputs, cells, cells_before, workspaces = list[Tensor](), list[Tensor](), list[Tensor](), list[Tensor]()
        of_levels = torch.split(hidden_before, levels.sizes[1:])
        for level, gates in enumerate(parts):
            if level == 0:
                recurrent = torch.zeros_like(gates)
            else:
                before, below = of_levels[level - 1], levels.below[level - 1]
                gather_into(before, hidden, below)
                cell_before = cells[-1].index_select(0, below)
                recurrent = (before @ weight.T).to(gates.dtype)
            hidden, cell, workspace = cell_forward(gates, recurrent, cell_before)
            outputs.append(hidden)
            cells.append(cell)
            cells_before.append(cell_before)
            workspaces.append(workspace)
        ctx.save_for_backward(hidden_before, weight, *cells, *cells_before, *workspaces)
        ctx.levels = levels
        return torch.cat(outputs)

    @staticmethod
    def _taken_over(ctx: Any, weight: Tensor, levels: StackLevels, taped: Taped) -> Tensor:
        """Keep what was computed before as ``forward`` keeps what it computes."""
        hidden_before, cells_before = (rows.index_select(0, taped.below) for rows in (taped.hidden, taped.cell))
        cells_before = torch.cat([torch.zeros_like(taped.cell[: levels.sizes[0]]), cells_before])
        kept = [one for rows in (taped.cell, cells_before, taped.gates) for one in torch.split(rows, levels.sizes)]
        ctx.save_for_backward(hidden_before.to(weight.dtype), weight, *kept)
        ctx.levels = levels
        return taped.hidden

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None, None]:
        hidden_before, weight, *saved = ctx.saved_tensors
        levels: StackLevels = ctx.levels
        num_levels = len(levels.sizes)
        cells, cells_before, workspaces = (saved[k * num_levels : (k + 1) * num_levels] for k in range(3))
        d_hidden = gradients[0].clone()  # which gathers what comes from the level above
        of_hidden, of_cell = (torch.split(one, levels.sizes) for one in (d_hidden, torch.zeros_like(d_hidden)))
        found = []
        for level in range(num_levels - 1, -1, -1):
            states = cells_before[level], cells[level], workspaces[level]
            d_gates, d_cell_before = cell_backward(of_hidden[level], of_cell[level], *states)
            found.append(d_gates)
            if level:
                below = levels.below[level - 1]
                of_hidden[level - 1].index_add_(0, below, (d_gates.to(weight.dtype) @ weight).to(d_gates.dtype))
                of_cell[level - 1].index_add_(0, below, d_cell_before)
        d_projected = torch.cat(found[::-1])
        d_weight = product(d_projected[levels.sizes[0] :].to(weight.dtype).T, hidden_before, like=d_projected)
        return d_projected, d_weight, None, None


def run_stack(
    inputs: Tensor, lstm: LSTMWeights, levels: StackLevels | Predecessors | Forest, taped: Taped | None = None
) -> Tensor:
    """Hidden states (n, H) of the rows of stacks, from their inputs (n, I), by one of the three forms of plans.

    With ``StackLevels``, states that were computed before can be given as ``taped``; they are not computed again.
    """
    if isinstance(levels, Predecessors):
        return sweep_lstm(inputs, lstm, levels)
    if isinstance(levels, Forest):
        from treelm.models.layers.fused import run_forest  # which imports Triton

        return run_forest(linear(inputs, lstm.weight_input, lstm.bias)[None], lstm.weight_hidden[None], levels)[0]
    return run_levels(inputs, (lstm.weight_input, lstm.weight_hidden, lstm.bias), levels, taped)


def run_levels(inputs: Tensor, weights: Sequence[Tensor], levels: StackLevels, taped: Taped | None = None) -> Tensor:
    """Hidden states (n, H) as ``run_stack`` gives them, from the three weights of ``LSTMWeights``."""
    weight_input, weight_hidden, bias = map(library_gates, weights)
    projected = linear(inputs, weight_input, bias)
    hidden: Tensor = _StackSweep.apply(projected, weight_hidden, levels, taped)  # type: ignore[no-untyped-call]
    return hidden


def cell_forward(from_input: Tensor, from_hidden: Tensor, cell: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The LSTM cell, from the products of input and of state (n, 4H, gates i, f, g, o) and the old cell state (n, H).

    Returns the new hidden and cell state (n, H), and the gates (n, 4H) that ``cell_backward`` needs. On a GPU it is one
    kernel, without autocast, which would round states to bfloat16.
    """
    if from_input.is_cuda:
        products = from_input.to(cell.dtype), from_hidden.to(cell.dtype)
        with torch.autocast("cuda", enabled=False):
            found: tuple[Tensor, Tensor, Tensor] = torch.ops.aten._thnn_fused_lstm_cell(*products, cell)
        return found
    size = cell.shape[1]
    gates = (from_input + from_hidden).sigmoid()
    i, f, g, o = gates.chunk(4, 1)
    g.copy_((from_input[:, 2 * size : 3 * size] + from_hidden[:, 2 * size : 3 * size]).tanh())
    new_cell = f * cell + i * g
    return o * new_cell.tanh(), new_cell, gates


def cell_backward(
    d_hidden: Tensor, d_cell: Tensor, cell_before: Tensor, cell: Tensor, gates: Tensor
) -> tuple[Tensor, Tensor]:
    """The gradients of ``cell_forward`` by the sum of both products (n, 4H), and by the old cell state (n, H)."""
    if d_hidden.is_cuda:
        backward = torch.ops.aten._thnn_fused_lstm_cell_backward_impl
        d_gates, d_cell_before, _ = backward(d_hidden, d_cell, cell_before, cell, gates, False)
        return d_gates, d_cell_before
    i, f, g, o = gates.chunk(4, 1)
    tanh_cell = cell.tanh()
    d_new = d_cell + d_hidden * o * (1 - tanh_cell**2)
    of_gates = (d_new * g, d_new * cell_before, d_new * i, d_hidden * tanh_cell)
    slopes = (i * (1 - i), f * (1 - f), 1 - g**2, o * (1 - o))
    return torch.cat([one * slope for one, slope in zip(of_gates, slopes, strict=True)], 1), d_new * f


class _Cell(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, from_input: Tensor, from_hidden: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
        hidden, new_cell, gates = cell_forward(from_input, from_hidden, cell)
        ctx.save_for_backward(cell, new_cell, gates)
        return hidden, new_cell

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        d_gates, d_cell = cell_backward(*gradients, *ctx.saved_tensors)
        return d_gates, d_gates, d_cell


def lstm_cell(from_input: Tensor, from_hidden: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
    """New hidden and cell state (n, H), from both products (n, 4H, gates i, f, g, o) and the old cell state (n, H)."""
    found: tuple[Tensor, Tensor] = _Cell.apply(from_input, from_hidden, cell)  # type: ignore[no-untyped-call]
    return found


def stepping(lstm: LSTMWeights, device: torch.device) -> Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]:
    """A function that computes what ``LSTMWeights.forward`` does, as long as the weights do not change."""
    if not few_calls(device):
        return lstm
    weight_input, weight_hidden, bias = map(library_gates, (lstm.weight_input, lstm.weight_hidden, lstm.bias))
    return lambda x, hidden, cell: lstm_cell(torch.addmm(bias, x, weight_input.T), hidden @ weight_hidden.T, cell)
