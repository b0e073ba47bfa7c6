"""What reading computes in few large calls: for a GPU, where starting a kernel costs more than what most compute.

While actions are chosen, one table of vectors holds all that a step may read, and each step gathers it at once. What is
found there is kept, so that the gradient is computed afterwards, by levels, without computing it forward again.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from treelm.models.layers import few_calls
from treelm.models.layers.devices import plan_to_device, to_device
from treelm.models.layers.few_calls import Taped, library_gates, plan_levels, run_stack
from treelm.models.layers.levels import schedule, schedule_tree
from treelm.models.layers.lstm import LSTMWeights
from treelm.models.layers.precision import linear, operand, product
from treelm.models.shift_reduce.machine import BoolArray, IntArray, Nodes

OPEN = 100.0
"""What opens a gate: its sigmoid is 1 in every precision."""


class StepTape:
    """The vectors of all nodes, computed as they are pushed, and the logits of REDUCE in the states on top.

    The rows of the table (rows, D) are a zero vector, the inputs x, the masks of dropout by sentence, and for each node
    what REDUCE would make of its item and the one below, and by layer the states h and c of the stack LSTM. So the item
    of a constituent is there before it is pushed. For each node that a step pushes these are gathered::

        item below, item, h of the first layer, [h of the layer below, h] of each other layer, mask, look-ahead

    and apart from them c of each layer. States are those of the node below. Factors of one product stand side by side.
    What is not there yet is written into its place: the new h of the layer below. The mask is multiplied by the new h
    of the last layer, which makes it the state that decides.

    The composition tanh(W [left; right] + b) is the state c of an LSTM whose input gate is open and which has no state
    before, so that it and the first layer are one product and one cell.
    """

    def __init__(
        self,
        inputs: Tensor,
        masks: Tensor | None,
        composition: nn.Linear,
        layers: Sequence[LSTMWeights],
        action_hidden: nn.Linear,
        action_score: nn.Linear,
        num_rows: int,
    ) -> None:
        """Begin with the inputs (m, D) of B = ``num_rows`` sentences and the masks of their states (B, D), if any."""
        num_inputs, size = inputs.shape
        self._masks_by_row, masks = masks is not None, inputs.new_ones(1, size) if masks is None else masks
        head = torch.cat([inputs.new_zeros(1, size), inputs.detach(), masks])
        self._num_inputs, self._num_layers, self._first = num_inputs, len(layers), len(head)
        num_nodes = 2 * num_inputs  # at most: all inputs, and one constituent less
        self._table = torch.cat([head, inputs.new_empty(num_nodes * (1 + 2 * len(layers)), size)])
        self._nodes = self._table[len(head) :].view(num_nodes, 1 + 2 * len(layers), size)
        self._items = np.zeros(1, np.int64)  # the row of the table with the item of each node
        self._composition, self._score = composition, action_score
        weights = [torch.cat([one.weight_input, one.weight_hidden], 1) for one in layers]
        zeros = torch.zeros_like(weights[0][: 2 * size])
        composing = torch.cat([zeros, composition.weight, zeros[:size]])
        self._weights = operand(torch.stack([composing, *map(library_gates, weights)])).transpose(1, 2)
        is_open = torch.cat([inputs.new_full((size,), OPEN), zeros[:size, 0]])
        biases = [torch.cat([is_open, composition.bias, zeros[:size, 0]]), *(library_gates(one.bias) for one in layers)]
        self._num_rows, self._biases = num_rows, torch.stack(biases).repeat_interleave(num_rows, 0)
        self._action = operand(action_hidden.weight), operand(action_hidden.bias)
        self._gates: list[list[Tensor]] = [[] for _ in layers]
        self.logits = torch.zeros(num_rows, dtype=inputs.dtype, device="cpu")  # (B,)
        self.num_nodes = 0

    def _places(self, nodes: IntArray, part: int) -> IntArray:
        """Where the table has a part of nodes: 0 what REDUCE makes, then h and c of each layer. Node 0 is the zero."""
        places = self._first + (nodes - 1) * self._nodes.shape[1] + part
        return np.where(nodes > 0, places, 0)

    def push(self, nodes: Nodes, rows: IntArray, reduces: BoolArray, positions: IntArray) -> None:
        """Compute the next nodes, one for each of ``rows``, and the logits of the same sentences with them on top.

        ``positions`` (n,) are the inputs that come next, which SHIFT pushes.
        """
        count, num, size = self._num_layers, len(rows), self._table.shape[1]
        items = np.where(reduces, self._places(nodes.right, 0), 1 + positions)
        cells = [np.zeros_like(items), *(self._places(nodes.below, 2 + 2 * layer) for layer in range(count))]
        index = np.zeros((num, 3 + 2 * count), np.int64)
        index[:, 0], index[:, 1] = self._items[nodes.below], items
        for layer in range(count):
            index[:, 2 + 2 * layer] = self._places(nodes.below, 1 + 2 * layer)
        index[:, -2] = 1 + self._num_inputs + (rows if self._masks_by_row else 0)
        index[:, -1] = 1 + np.minimum(positions + ~reduces, self._num_inputs - 1)  # any, if there are no more
        self._items = np.concatenate([self._items, items])
        indices = to_device(np.concatenate([index.reshape(-1), *cells]), self._table.device)
        gathered, cell = self._table.index_select(0, indices).split([index.size, num * len(cells)])
        read = gathered.view(*index.shape, size)
        pairs = read.as_strided((2, num, 2 * size), (size, read.stride(0), 1))  # [left; right] and [right; h]
        gates = torch.bmm(pairs.to(self._weights.dtype), self._weights[:2]).flatten(0, 1)
        biases = self._biases[self._num_rows - num : self._num_rows + num]
        hidden, new_cell, kept = few_calls.cell_forward(gates, biases, cell[: 2 * num])
        made = [new_cell[:num], hidden[num:], new_cell[num:]]
        self._gates[0].append(kept[num:])
        for layer in range(1, count):
            read[:, 1 + 2 * layer].copy_(made[-2])
            pair = read[:, 1 + 2 * layer : 3 + 2 * layer].flatten(1)
            gates = product(pair.to(self._weights.dtype), self._weights[1 + layer], like=read)
            first = (1 + layer) * self._num_rows
            *state, kept = few_calls.cell_forward(
                gates, self._biases[first : first + num], cell[(1 + layer) * num : (2 + layer) * num]
            )
            made += state
            self._gates[layer].append(kept)
        torch.stack(made, 1, out=self._nodes[self.num_nodes : self.num_nodes + num])
        self.num_nodes += num
        read[:, -2].mul_(made[-2])
        weight, bias = self._action
        action = torch._addmm_activation(bias, read[:, -2:].flatten(1).to(weight.dtype), weight.T)  # ReLU
        logits = linear(action.to(read.dtype), self._score.weight, self._score.bias)
        self.logits[torch.from_numpy(rows)] = logits[:, 0].cpu()

    def states(self, pushed: Nodes, positions: IntArray, inputs: Tensor, layers: Sequence[LSTMWeights]) -> Tensor:
        """The state of the last layer with every node on top, row 0 for none, (nodes + 1, D), as a function of weights.

        ``positions`` (nodes,) are the inputs that became nodes, or -1 for constituents.
        """
        if not torch.is_grad_enabled():
            return torch.cat([self._table[:1], self._nodes[: self.num_nodes, -2]])
        order = schedule_tree(pushed.below - 1, pushed.heights - 1)  # a node stands on one whose stack is lower by one
        before = order.position[pushed.below[order.order[int(order.offsets[1]) :]] - 1]
        constituents, number = np.flatnonzero(positions < 0), np.full(len(positions) + 1, -1)
        number[constituents + 1] = np.arange(len(constituents))
        parts = np.stack([pushed.left, pushed.right], 1)[constituents]
        wholes = schedule(number[parts])
        in_bank = positions.copy()  # inputs first, then constituents by level
        in_bank[constituents[wholes.order]] = len(inputs) + np.arange(len(constituents))
        arrays = (
            order.order,
            order.position,
            before,
            order.position[np.argsort(in_bank)],
            in_bank[parts[wholes.order] - 1],
            self._items[1:][order.order],
        )
        levels, (permutation, position, below, bank, read, rows) = plan_to_device(
            (plan_levels(before, order.offsets), tuple(map(torch.from_numpy, arrays))), inputs.device
        )
        items = self._table.index_select(0, rows)
        _, *states = self._nodes[: self.num_nodes].index_select(0, permutation).unbind(1)
        composition = self._composition.weight, self._composition.bias
        vectors = _Items.apply(inputs, *composition, items, bank, read, wholes.offsets.tolist())  # type: ignore[no-untyped-call]
        for weights, hidden, cell, gates in zip(layers, states[::2], states[1::2], self._gates, strict=True):
            taped = Taped(below, hidden.contiguous(), cell.contiguous(), torch.cat(gates).index_select(0, permutation))
            vectors = run_stack(vectors, weights, levels, taped)
        return torch.cat([inputs.new_zeros(1, inputs.shape[1]), vectors.index_select(0, position)])


class _Items(torch.autograd.Function):
    """Items that were computed, as a function of inputs and composition; the gradient takes the levels backwards."""

    @staticmethod
    def forward(
        ctx: Any,
        inputs: Tensor,  # (m, D)
        weight: Tensor,  # (D, 2D)
        bias: Tensor,
        items: Tensor,  # (nodes, D)
        bank: Tensor,  # (nodes,) the item that is each of inputs and, by level, constituents
        read: Tensor,  # (constituents, 2) parts, numbers in the bank
        offsets: Sequence[int],  # of the levels
    ) -> Tensor:
        items = items.contiguous()
        ctx.save_for_backward(items, operand(weight), bank, read)
        ctx.offsets = offsets
        return items

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        items, weight, order, read = ctx.saved_tensors
        bank, d_bank = (rows.index_select(0, order) for rows in (items, gradients[0]))
        num_inputs, size, dtype = len(bank) - len(read), bank.shape[1], weight.dtype
        new, d_new = bank[num_inputs:], d_bank[num_inputs:]
        for start, end in reversed(list(pairwise(ctx.offsets))):
            d_rows = d_new[start:end]
            torch.ops.aten.tanh_backward.grad_input(d_rows, new[start:end], grad_input=d_rows)
            d_parts = product(d_rows.to(dtype), weight, like=bank)
            d_bank.index_add_(0, read[start:end].reshape(-1), d_parts.view(-1, size))
        parts = bank.index_select(0, read.view(-1)).view(-1, 2 * size)
        d_weight = product(d_new.to(dtype).T, parts.to(dtype), like=bank)
        return d_bank[:num_inputs], d_weight, d_new.sum(0), None, None, None, None
