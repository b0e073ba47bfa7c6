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

    With the node that an action pushes, both nodes that the next action could push are computed, and the logits with
    each of the three on top, so that the device is asked once for two actions. A node that was computed has a number of
    its own, from 1 on, whether it was pushed or not: its place. The rows of the table (rows, D) are a zero vector, the
    inputs x, the masks of dropout by sentence, and for each place what REDUCE would make of the node's item and the one
    below, and by layer the states h and c of the stack LSTM. For each place these are gathered::

        item below, item, h of the first layer, [h of the layer below, h] of each other layer

    and apart from them c of each layer. States are those of the node below. Factors of one product stand side by side;
    the new h of the layer below is written into its place.

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
        most = 3 * num_inputs  # three places for two actions, of which a sentence has less than two for each input
        self._table = torch.cat([head, inputs.new_empty(most * (1 + 2 * len(layers)), size)])
        self._vectors = self._table[len(head) :].view(most, 1 + 2 * len(layers), size)
        # Of each node: its place, the row of the table with its item, and the node below it.
        self._places, self._items, self._below = np.zeros((3, 1), np.int64)
        self._num_places = 0
        self._next: tuple[IntArray, Tensor] | None = None  # places and logits (B, 2) after SHIFT and after REDUCE
        self._composition, self._score = composition, action_score
        weights = [torch.cat([one.weight_input, one.weight_hidden], 1) for one in layers]
        zeros = torch.zeros_like(weights[0][: 2 * size])
        composing = torch.cat([zeros, composition.weight, zeros[:size]])
        self._weights = operand(torch.stack([composing, *map(library_gates, weights)])).transpose(1, 2)
        is_open = torch.cat([inputs.new_full((size,), OPEN), zeros[:size, 0]])
        biases = [torch.cat([is_open, composition.bias, zeros[:size, 0]]), *(library_gates(one.bias) for one in layers)]
        self._most_rows, self._biases = 2 * num_rows, torch.stack(biases).repeat_interleave(2 * num_rows, 0)
        self._action = operand(action_hidden.weight), operand(action_hidden.bias)
        self._gates: list[list[Tensor]] = [[] for _ in layers]
        self.logits = torch.zeros(num_rows, dtype=inputs.dtype, device="cpu")  # (B,)

    def _row(self, places: IntArray, part: int) -> IntArray:
        """Where the table has a part of these places: 0 what REDUCE makes, then h and c of each layer."""
        rows = self._first + (places - 1) * self._vectors.shape[1] + part
        return np.where(places > 0, rows, 0)

    def push(self, nodes: Nodes, rows: IntArray, reduces: BoolArray, positions: IntArray) -> None:
        """Push the next nodes, one for each of ``rows``, and give the logits of the same sentences with them on top.

        ``positions`` (n,) are the inputs that come next, which SHIFT pushes.
        """
        items = np.where(reduces, self._row(self._places[nodes.right], 0), 1 + positions)
        if self._next is None:
            places, logits = self._compute(nodes, rows, items, positions + ~reduces)
            self._next = np.zeros((len(self.logits), 2), np.int64), self.logits.new_zeros(len(self.logits), 2)
            self._next[0][rows], self._next[1][torch.from_numpy(rows)] = places[:, 1:], logits[:, 1:]
            places, logits = places[:, 0], logits[:, 0]
        else:
            which = rows, reduces.astype(np.int64)
            places, logits = self._next[0][which], self._next[1][tuple(map(torch.from_numpy, which))]
            self._next = None
        self.logits[torch.from_numpy(rows)] = logits
        new = zip((self._places, self._items, self._below), (places, items, nodes.below), strict=True)
        self._places, self._items, self._below = (np.concatenate(pair) for pair in new)

    def _compute(self, nodes: Nodes, rows: IntArray, items: IntArray, positions: IntArray) -> tuple[IntArray, Tensor]:
        """Compute nodes, after which ``positions`` come, and what SHIFT and REDUCE would push next.

        Gives the places and the logits of all three (n, 3).
        """
        num = len(rows)
        places = 1 + self._num_places + np.arange(3 * num).reshape(3, num)
        ahead = positions + np.array([[0], [1], [0]])
        inputs = 1 + np.minimum(ahead, self._num_inputs - 1)  # any, if there are no more
        under = self._below[nodes.below]  # what REDUCE would push on; SHIFT pushes on the new node
        masks = 1 + self._num_inputs + (np.tile(rows, 3) if self._masks_by_row else np.zeros(3 * num, np.int64))
        states = self._row(places.reshape(-1), 2 * self._num_layers - 1)
        below, items_below = self._places[nodes.below], self._items[nodes.below]
        after = np.append(places[0], self._places[under]), np.append(items, self._items[under])
        parts = [
            self._reads(below, items_below, items),
            self._reads(*after, np.append(inputs[0], self._row(places[0], 0))),
            np.stack([states, inputs.reshape(-1), masks], 1).reshape(-1),
        ]
        indices = to_device(np.concatenate(parts), self._table.device)
        first, second, of_states = torch.split(indices, [len(part) for part in parts])
        self._level(first, num)
        self._level(second, 2 * num)
        read = self._table.index_select(0, of_states).view(3 * num, 3, -1)
        read[:, 0].mul_(read[:, 2])
        weight, bias = self._action
        hidden = torch._addmm_activation(bias, read[:, :2].flatten(1).to(weight.dtype), weight.T)  # ReLU
        logits = linear(hidden.to(read.dtype), self._score.weight, self._score.bias)
        return places.T, logits.view(3, num).cpu().T

    def _reads(self, below: IntArray, items_below: IntArray, items: IntArray) -> IntArray:
        """The rows of the table that nodes read, from the places below and two rows: by node, then c by layer."""
        layers = range(self._num_layers)
        states = [self._row(below, 1 + 2 * layer) for layer in layers for _ in range(2)]
        by_node = [items_below, items, *states[1:]]  # where a state is read twice, the first is overwritten
        cells = [np.zeros_like(items), *(self._row(below, 2 + 2 * layer) for layer in layers)]
        return np.concatenate([np.stack(by_node, 1).reshape(-1), *cells])

    def _level(self, indices: Tensor, num: int) -> None:
        """Compute nodes at the next places from what they read."""
        size, width = self._table.shape[1], 1 + 2 * self._num_layers
        read, cell = torch.split(self._table.index_select(0, indices), [num * width, len(indices) - num * width])
        read, cell = read.view(num, width, size), cell.view(-1, num, size)
        pairs = read.as_strided((2, num, 2 * size), (size, read.stride(0), 1))  # [left; right] and [right; h]
        gates = torch.bmm(pairs.to(self._weights.dtype), self._weights[:2]).flatten(0, 1)
        biases = self._biases[self._most_rows - num : self._most_rows + num]
        hidden, new_cell, kept = few_calls.cell_forward(gates, biases, cell[:2].flatten(0, 1))
        made = [new_cell[:num], hidden[num:], new_cell[num:]]
        self._gates[0].append(kept[num:])
        for layer in range(1, self._num_layers):
            read[:, 1 + 2 * layer].copy_(made[-2])
            pair = read[:, 1 + 2 * layer : 3 + 2 * layer].flatten(1)
            gates = product(pair.to(self._weights.dtype), self._weights[1 + layer], like=read)
            biases = self._biases[(1 + layer) * self._most_rows :][:num]
            *state, kept = few_calls.cell_forward(gates, biases, cell[1 + layer])
            made += state
            self._gates[layer].append(kept)
        torch.stack(made, 1, out=self._vectors[self._num_places : self._num_places + num])
        self._num_places += num

    def states(self, pushed: Nodes, positions: IntArray, inputs: Tensor, layers: Sequence[LSTMWeights]) -> Tensor:
        """The state of the last layer with every node on top, row 0 for none, (nodes + 1, D), as a function of weights.

        ``positions`` (nodes,) are the inputs that became nodes, or -1 for constituents.
        """
        if not torch.is_grad_enabled():
            places = to_device(self._row(self._places, 2 * self._num_layers - 1), inputs.device)
            return self._table.index_select(0, places)
        order = schedule_tree(pushed.below - 1, pushed.heights - 1)  # a node stands on one whose stack is lower by one
        before = order.position[pushed.below[order.order[int(order.offsets[1]) :]] - 1]
        constituents, number = np.flatnonzero(positions < 0), np.full(len(positions) + 1, -1)
        number[constituents + 1] = np.arange(len(constituents))
        parts = np.stack([pushed.left, pushed.right], 1)[constituents]
        wholes = schedule(number[parts])
        in_bank = positions.copy()  # inputs first, then constituents by level
        in_bank[constituents[wholes.order]] = len(inputs) + np.arange(len(constituents))
        arrays = (
            self._places[1:][order.order] - 1,
            self._items[1:][order.order],
            order.position,
            before,
            order.position[np.argsort(in_bank)],
            in_bank[parts[wholes.order] - 1],
        )
        levels, (chosen, rows, position, below, bank, read) = plan_to_device(
            (plan_levels(before, order.offsets), tuple(map(torch.from_numpy, arrays))), inputs.device
        )
        items = self._table.index_select(0, rows)
        _, *states = self._vectors.index_select(0, chosen).unbind(1)
        composition = self._composition.weight, self._composition.bias
        vectors = _Items.apply(inputs, *composition, items, bank, read, wholes.offsets.tolist())  # type: ignore[no-untyped-call]
        for weights, hidden, cell, gates in zip(layers, states[::2], states[1::2], self._gates, strict=True):
            taped = Taped(below, hidden.contiguous(), cell.contiguous(), torch.cat(gates).index_select(0, chosen))
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
