"""The cell of ``kernels`` in few large calls, for a GPU, where starting a kernel costs more than what most compute.

``sweep_cell`` takes the form that suits the device of its tensors.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from treelm.models.layers.devices import few_calls, to_device
from treelm.models.layers.levels import starts
from treelm.models.layers.precision import add_product, linear, multiply_into, operand, product
from treelm.models.som.kernels import NORM_EPSILON, CellTape, CellWeights, SlotTape, differentiable_bank, segmented_norm
from treelm.models.som.plan import CellGraph, IntArray, PackedLayout


def appended(rows: Tensor, more: Tensor) -> Tensor:
    """Rows, then more of them; where there are none yet, without a call."""
    return torch.cat([rows, more]) if len(rows) else more


class ChainTape(CellTape):
    """The slots of a step are a chain of products, and each level of the gradient is seven calls.

    The slots of a step are a chain: h of a node is what the node below has just given, so that other vectors are
    gathered, and multiplied by their dropout d, once a step. A row of ``joined`` is (d h, d m, h, m, u, f, i, c), and
    what is mixed is one gated linear unit, of the values h, m, u and the gates f, i, c, and a sum. Before their nodes
    are evaluated, ``joined`` holds d and 1, and ``hidden`` the bias b_1, or minus infinity where dropout makes it 0;
    its scale is in W_2.
    """

    def __init__(self, leaves: Tensor, weights: CellWeights, *, capacity: int, dropout: float) -> None:
        """Begin with leaves (L, D). Memory is for so many nodes at first, and is doubled where there are more."""
        size = leaves.shape[1]
        self.dropout, self.segments = dropout, weights.segments
        self.num_leaves, self.num_nodes = len(leaves), 0
        self._hidden_bias = weights.hidden_bias.detach()
        self._norm = weights.norm_weight.detach(), weights.norm_bias.detach()
        self._hidden_weight = operand(weights.hidden_weight.detach())
        last_first = torch.roll(weights.gate_weight.detach(), size, 0), torch.roll(weights.gate_bias.detach(), size, 0)
        self._gate_weight, self._gate_bias = operand(last_first[0] / (1 - dropout)), last_first[1]
        self.bank = leaves.detach()
        self.joined, self.hidden, self.mixed, self.kept = (leaves.new_empty(0, k * size) for k in (8, 4, 1, 2))
        self._grow(capacity)

    def _grow(self, num_nodes: int) -> None:
        """Make room for so many nodes more, and draw their dropout."""
        size = self.bank.shape[1]
        kept, hidden = self.bank.new_ones(num_nodes, 2 * size), self.bank.new_ones(num_nodes, 4 * size)
        if self.dropout:
            kept.bernoulli_(1 - self.dropout).div_(1 - self.dropout)
            hidden.bernoulli_(1 - self.dropout)
        vectors = self.bank.new_empty(num_nodes, size)
        self.bank, self.mixed = torch.cat([self.bank, vectors]), appended(self.mixed, vectors)
        self.kept, self.hidden = appended(self.kept, kept), appended(self.hidden, hidden.log_().add_(self._hidden_bias))
        joined = torch.cat([kept, torch.ones_like(kept), torch.empty_like(hidden)], 1)
        self.joined = appended(self.joined, joined)

    def sweep(self, graph: CellGraph) -> None:
        """See ``CellTape``."""
        for start, end in pairwise(graph.offsets):
            read = self.bank.index_select(0, graph.reads[start:end].view(-1))
            self._evaluate(read.view(end - start, 2, -1), [end - start])

    def _evaluate(self, read: Tensor, sizes: Sequence[int]) -> None:
        """Evaluate chains, of which each slot has so many nodes, from h and m of all nodes (n, 2, D).

        Beyond the first slot h is not known yet, and is 1.
        """
        first, end, size = self.num_nodes, self.num_nodes + len(read), self.bank.shape[1]
        while end > len(self.hidden):
            self._grow(len(self.hidden))
        self.joined[first:end].view(-1, 4, 2, size)[:, :2].mul_(read[:, None])
        results = list[Tensor]()
        for start, stop in pairwise((first + starts(np.array(sizes))).tolist()):
            joined, hidden = self.joined[start:stop], self.hidden[start:stop]
            if results:
                joined.view(-1, 4, 2, size)[:, :2, 0].mul_(results[-1][: stop - start, None])
            add_product(hidden, joined[:, : 2 * size], self._hidden_weight.T)
            multiply_into(joined[:, 4 * size :], hidden.relu_(), self._gate_weight.T, bias=self._gate_bias)
            values = functional.glu(self._values_and_gates(joined), 1)
            mixed = torch.sum(values, (1, 2), out=self.mixed[start:stop])
            results.append(segmented_norm(mixed, *self._norm, self.segments))
        torch.cat(results, out=self.bank[self.num_leaves + first : self.num_leaves + end])
        self.num_nodes = end

    def _values_and_gates(self, joined: Tensor) -> Tensor:
        """(n, 2, 3, D) of rows (n, 8D)."""
        size = self.bank.shape[1]
        return joined[:, 2 * size :].view(-1, 2, 3, size)

    def sort(self, order: Tensor) -> None:
        """See ``CellTape``."""
        for name in ("joined", "hidden", "mixed", "kept"):
            setattr(self, name, getattr(self, name).index_select(0, order))
        self.bank = torch.cat([self.bank[: self.num_leaves], self.bank.index_select(0, self.num_leaves + order)])

    def gradient(self, d_bank: Tensor, bank: Tensor, graph: CellGraph) -> tuple[Tensor, ...]:
        """See ``CellTape``."""
        size, dtype, d_results = bank.shape[1], self._gate_weight.dtype, d_bank[self.num_leaves :]
        d_hidden, d_joined = torch.empty_like(self.hidden), bank.new_empty(len(self.mixed), 6 * size)
        parts = self.mixed.split_with_sizes(self.segments, 1)
        statistics = [torch.native_layer_norm(part, part.shape[1:], None, None, NORM_EPSILON)[1:] for part in parts]
        for start, end in reversed(list(pairwise(graph.offsets))):
            rows = slice(start, end)
            (d_mixed,) = self._norm_gradient(d_results[rows], rows, statistics, (True, False, False))
            d_read, d_gates = torch.split(d_joined[rows], [2 * size, 4 * size], 1)
            torch.ops.aten.glu_backward.grad_input(
                d_mixed[:, None, None].expand(-1, 1, 3, -1),
                self._values_and_gates(self.joined[rows]),
                1,
                grad_input=d_joined[rows].view(-1, 2, 3, size),
            )
            multiply_into(d_hidden[rows], d_gates, self._gate_weight)
            torch.ops.aten.threshold_backward.grad_input(
                d_hidden[rows], self.hidden[rows], 0, grad_input=d_hidden[rows]
            )
            d_dropped = product(d_hidden[rows].to(dtype), self._hidden_weight, like=bank)
            d_read = torch.addcmul(d_read, d_dropped, self.kept[rows])
            d_bank.index_add_(0, graph.reads[rows].view(-1), d_read.view(-1, size))
        d_gates = d_joined[:, 2 * size :]
        d_hidden_weight = product(d_hidden.to(dtype).T, self.joined[:, : 2 * size].to(dtype), like=bank)
        d_gate_weight = product(d_gates.to(dtype).T, self.hidden.to(dtype), like=bank).div_(1 - self.dropout)
        d_gate_weight, d_gate_bias = torch.roll(d_gate_weight, -size, 0), torch.roll(d_gates.sum(0), -size, 0)
        d_norm = self._norm_gradient(d_results, slice(None), statistics, (False, True, True))
        return d_hidden_weight, d_hidden.sum(0), d_gate_weight, d_gate_bias, *d_norm

    def _norm_gradient(
        self,
        d_results: Tensor,
        rows: slice,
        statistics: Sequence[Sequence[Tensor]],
        wanted: tuple[bool, bool, bool],
    ) -> list[Tensor]:
        """The gradients that are wanted of what was mixed, of the norm's weight and of its bias."""
        found = [
            torch.ops.aten.native_layer_norm_backward(
                d_part, part, part.shape[1:], mean[rows], inverse[rows], weight, bias, wanted
            )
            for d_part, part, weight, bias, (mean, inverse) in zip(
                *(one.split_with_sizes(self.segments, -1) for one in (d_results, self.mixed[rows], *self._norm)),
                statistics,
                strict=True,
            )
        ]
        by_kind = [parts for parts, is_wanted in zip(zip(*found, strict=True), wanted, strict=True) if is_wanted]
        return [torch.cat(parts, -1) if len(parts) > 1 else parts[0] for parts in by_kind]


class ScoringTape(ChainTape):
    """A tape that also scores each vector of the bank, as soon as it is there, as a candidate of attachment.

    A vector is a candidate once, when the position after its own is decided about, so that dropout is drawn and scores
    are computed by vector. A ReLU of query and key is max(key, -query) - (-query), so that a score is one product of
    the two parts, whose weights have the dropout of hidden units. All that a step gathers is in one table: a row of
    ones, the negative queries and the bank.
    """

    def __init__(
        self,
        leaves: Tensor,
        weights: CellWeights,
        attachment: Any,
        queries: Tensor,
        layout: PackedLayout,
        *,
        dropout: float,
    ) -> None:
        """Begin with the inputs (P, D) and queries (P, D) of all positions."""
        positions = np.arange(len(leaves))
        self._attachment, self._positions = attachment, positions
        self._after = np.minimum(layout.after(positions), len(leaves) - 1)  # which is not read if there is none
        score = attachment.score.weight.detach() / math.sqrt(leaves.shape[1])
        self._signed = torch.cat([score, -score])
        self._table = torch.cat([torch.ones_like(queries[:1]), -queries.detach()])
        self._masks, self._weights = leaves.new_empty(0, 2, leaves.shape[1]), leaves.new_empty(0, *self._signed.shape)
        self.scores = torch.empty(0, dtype=leaves.dtype, device="cpu")  # of all vectors of the bank
        super().__init__(leaves, weights, capacity=3 * len(leaves), dropout=dropout)
        index = np.stack([np.zeros_like(positions), 1 + self._after], 1)
        read = self._table.index_select(0, to_device(index.reshape(-1), leaves.device))
        self._score(0, read.view(len(leaves), 2, -1))

    def _grow(self, num_nodes: int) -> None:
        super()._grow(num_nodes)
        num_before = 1 + self.num_leaves
        self._table = torch.cat([self._table[:num_before], self.bank])
        self.bank = self._table[num_before:]
        masks = self.bank.new_ones(len(self.bank) - len(self._masks), 2, self.bank.shape[1])
        if self.dropout:
            masks.bernoulli_(1 - self.dropout).div_(1 - self.dropout)
        self._masks = appended(self._masks, masks)
        self._weights = appended(self._weights, masks[:, 1:] * self._signed)

    def extend(self, slots: Sequence[tuple[IntArray, IntArray]]) -> None:
        """Evaluate the nodes of one step, slot by slot as ``MemoryGraph.step`` gives them."""
        below, stored = slots[0][0], [second for _, second in slots]
        positions = np.concatenate([self._positions[below[: len(second)]] for second in stored])
        num_before, first = 1 + self.num_leaves, self.num_leaves + self.num_nodes
        index = np.zeros((len(positions), 3), np.int64)
        index[: len(below), 0] = num_before + below
        index[:, 1] = num_before + np.concatenate(stored)
        index[:, 2] = 1 + self._after[positions]
        read = self._table.index_select(0, to_device(index.reshape(-1), self.bank.device)).view(*index.shape, -1)
        self._positions = np.concatenate([self._positions, positions])
        self._evaluate(read[:, :2], [len(second) for second in stored])
        self._score(first, read[:, 1:])

    def _score(self, first: int, read: Tensor) -> None:
        """Score the vectors from this number on, as candidates where read[:, 1] (n, D) are the negative queries."""
        vectors, key = slice(first, first + len(read)), self._attachment.key
        keys = self._attachment.key_norm(linear(self.bank[vectors] * self._masks[vectors, 0], key.weight, key.bias))
        torch.maximum(keys, read[:, 1], out=read[:, 0])
        scores = self.bank.new_empty(len(read), 1, 1)  # with ``out``, because autocast would round to bfloat16
        torch.bmm(read.flatten(1)[:, None], self._weights[vectors].view(len(read), -1, 1), out=scores)
        self.scores = torch.cat([self.scores, scores.view(-1).cpu()])

    def masks_of(self, numbers: IntArray) -> Tensor:
        """The masks (2, n, D) of candidates with these numbers and of their hidden units."""
        return self._masks.index_select(0, to_device(numbers, self.bank.device)).transpose(0, 1)

    def sort(self, order: Tensor) -> None:
        """See ``CellTape``. What is only for scores is given up."""
        super().sort(order)
        self._table = self._masks = self._weights = self.bank[:0]


def sweep_cell(leaves: Tensor, weights: CellWeights, graph: CellGraph, *, dropout: float = 0.0) -> Tensor:
    """The bank (L + n, D) of leaves (L, D) and of the results of a graph's nodes, computed by levels."""
    with torch.no_grad():
        kind = ChainTape if few_calls(leaves.device) else SlotTape
        tape = kind(leaves, weights, capacity=len(graph.reads), dropout=dropout)
        tape.sweep(graph)
    return differentiable_bank(leaves, weights, graph, tape)
