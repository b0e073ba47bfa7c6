"""The same network in few large calls, for a GPU, where starting a kernel costs more than what most kernels compute.

Two changes of order, and no change of any number but its last bits:

* Composition goes by the height of local trees. All trees of one height, whose children are words, labels and lower
  trees, are packed sequences of two LSTM calls: NT, c_1 ... c_n and NT, c_n ... c_1, longest first. The library's
  kernel runs the chains inside, and its last states are f and b of ``LSTMComposition``.
* The stack LSTM goes by the height of the stack. Below an item of height k lies one of height k - 1, so a level needs
  the states of the level before it alone: one product and one cell a level.

``composition.compose`` and ``layers.lstm.sweep_lstm`` compute the same on a CPU, where products that several steps
share are worth more than few calls. The plain form is ``tests/models/rnng/plain.py``.

A tree (S (NP the dog) barks): its NP has height 0, read as [NP, the, dog] and [NP, dog, the]; S has height 1, read as
[S, NP's vector, barks] and [S, barks, NP's vector].
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from treelm.models.layers.levels import Schedule
from treelm.models.layers.lstm import LSTMWeights
from treelm.models.layers.precision import gather_into, linear, operand, product
from treelm.models.rnng.composition import LSTMComposition
from treelm.models.search.derivations import LocalTrees

IntArray = NDArray[np.int64]

# Legend: F local trees, L given vectors, E size of a vector, H of a state, T contexts.


class TreeLevel(NamedTuple):
    """Local trees of one height, as packed sequences: entries of step 1 of all trees, then of step 2, and so on."""

    forward: Tensor  # numbers of the vectors that the forward LSTM reads
    backward: Tensor
    batch_sizes: list[int]  # trees that have a step 1, a step 2, ...


class StackLevels(NamedTuple):
    """Contexts by the height of their stacks: rows of level k step from rows of level k - 1."""

    sizes: list[int]
    below: list[Tensor]  # of each level but the first, where sentences start: row within the level before it


def order_by_height(local_trees: LocalTrees, num_actions: int) -> tuple[IntArray, list[int]]:
    """Local trees (F,) by height and, in each height, longest first; and the number of trees of each height.

    A tree whose children are all words has height 0.
    """
    num_trees = len(local_trees.reduce)
    tree_of_action = np.full(num_actions, -1)
    tree_of_action[local_trees.reduce] = np.arange(num_trees)
    sizes = np.diff(local_trees.offsets)
    parent, child = np.repeat(np.arange(num_trees), sizes), tree_of_action[local_trees.entries]
    parent, child = parent[child >= 0], child[child >= 0]
    height = np.zeros(num_trees, np.int64)
    while len(parent):
        before = height.copy()
        np.maximum.at(height, parent, before[child] + 1)
        is_done = height[parent] == before[parent]
        if is_done.all():
            break
    return np.lexsort((-sizes, height)), np.bincount(height).tolist()


def plan_trees(
    local_trees: LocalTrees, order: IntArray, counts: list[int], vector_of_action: IntArray
) -> list[TreeLevel]:
    """The packed sequences of every height; constituents have the vectors that ``vector_of_action`` says."""
    levels, first = [], local_trees.offsets[:-1]
    for trees in np.split(order, np.cumsum(counts)[:-1]) if len(order) else []:
        length = (local_trees.offsets[trees + 1] - first[trees])[None]
        step = np.arange(length.max())[:, None]
        is_read = step < length
        forward = first[trees] + step
        backward = np.where(step == 0, forward, first[trees] + length - step)
        read = [vector_of_action[local_trees.entries[places[is_read]]] for places in (forward, backward)]
        levels.append(TreeLevel(torch.from_numpy(read[0]), torch.from_numpy(read[1]), is_read.sum(1).tolist()))
    return levels


def plan_stack(below: IntArray, contexts: Schedule) -> StackLevels:
    """``below`` (T - B,) is the row below each row of level 1 and more, counted over all rows."""
    offsets = contexts.offsets
    within = below - np.repeat(offsets[:-2], np.diff(offsets[1:]))
    sizes = np.diff(offsets).tolist()
    return StackLevels(sizes, list(torch.split(torch.from_numpy(within), sizes[1:])))


class LSTMPieces(NamedTuple):
    """An LSTM's weights with the library's gates (i, f, g, o), as slices of one buffer: cuDNN wants them so."""

    weight_input: Tensor
    weight_hidden: Tensor
    bias_input: Tensor
    bias_hidden: Tensor  # zero: there is one bias

    @classmethod
    def of(cls, lstm: LSTMWeights) -> LSTMPieces:
        """Order the weights anew; gradients find their way back."""
        parts = [library_gates(part) for part in (lstm.weight_input, lstm.weight_hidden, lstm.bias)]
        parts.append(torch.zeros_like(parts[2]))
        flat = operand(torch.cat([part.reshape(-1) for part in parts]))
        pieces = torch.split(flat, [part.numel() for part in parts])
        return cls(*(piece.view(part.shape) for piece, part in zip(pieces, parts, strict=True)))


def library_gates(rows: Tensor) -> Tensor:
    """From the gates i, f, o, g to i, f, g, o."""
    i, f, o, g = rows.chunk(4, 0)
    return torch.cat([i, f, g, o])


def compose_by_height(
    given: Tensor, composition: LSTMComposition, kept: Tensor | None, levels: list[TreeLevel]
) -> Tensor:
    """All vectors (L + F, E): the given ones (L, E), then constituents by height.

    ``kept`` is the dropout mask on [f; b], scaled, (F, 2E), or None.
    """
    lstms = [LSTMPieces.of(lstm) for lstm in (composition.forward_lstm, composition.backward_lstm)]
    weight, bias = operand(composition.output.weight), operand(composition.output.bias)
    zero = weight.new_zeros(1, max((level.batch_sizes[0] for level in levels), default=0), given.shape[1])
    vectors, start = given, 0
    for level in levels:
        batch_sizes = torch.tensor(level.batch_sizes)  # stays on the CPU, where the library looks at it
        end = start + level.batch_sizes[0]
        ends = [
            last_states(operand(vectors.index_select(0, numbers)), batch_sizes, zero[:, : end - start], lstm)
            for numbers, lstm in zip((level.forward, level.backward), lstms, strict=True)
        ]
        both = torch.cat(ends, 1)
        if kept is not None:
            both = both * kept[start:end].to(both.dtype)
        vectors = torch.cat([vectors, functional.linear(both, weight, bias).relu().to(given.dtype)])
        start = end
    return vectors


def last_states(inputs: Tensor, batch_sizes: Tensor, zero: Tensor, lstm: LSTMPieces) -> Tensor:
    """Last hidden states (n, E) of packed sequences, longest first, in one call of the library's LSTM."""
    found = torch._VF.lstm(inputs, batch_sizes, (zero, zero), list(lstm), True, 1, 0.0, True, False)
    last: Tensor = found[1].squeeze(0)
    return last


class _StackSweep(torch.autograd.Function):
    """The stack LSTM level by level; the gradient of its weights is one product after the sweep."""

    @staticmethod
    def forward(ctx: Any, projected: Tensor, weight_hidden: Tensor, levels: StackLevels) -> Tensor:
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
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None]:
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
        return d_projected, d_weight, None


def stack_lstm(inputs: Tensor, lstm: LSTMWeights, levels: StackLevels) -> Tensor:
    """Hidden states (T, H) of inputs (T, I), both by the height of the stack."""
    weight_input, weight_hidden, bias = map(library_gates, (lstm.weight_input, lstm.weight_hidden, lstm.bias))
    projected = linear(inputs, weight_input, bias)
    hidden: Tensor = _StackSweep.apply(projected, weight_hidden, levels)  # type: ignore[no-untyped-call]
    return hidden


def cell_forward(from_input: Tensor, from_hidden: Tensor, cell: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The LSTM cell of both products (n, 4H): hidden and cell state (n, H), and the gates that its gradient needs.

    One kernel on a GPU.
    """
    if from_input.is_cuda:
        found: tuple[Tensor, Tensor, Tensor] = torch.ops.aten._thnn_fused_lstm_cell(from_input, from_hidden, cell)
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
    """The gradients of ``cell_forward`` by the sum of both products (n, 4H) and by the cell state before (n, H)."""
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
