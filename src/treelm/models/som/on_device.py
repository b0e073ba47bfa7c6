"""The cell of ``kernels`` in few large calls, for a GPU, where starting a kernel costs more than what most compute.

``begin_tape``, ``sweep_cell`` and ``PairMasks`` take the form that suits the device of their tensors.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from treelm.models.layers.devices import few_calls, to_device
from treelm.models.layers.levels import starts
from treelm.models.layers.precision import add_product, multiply_into, operand, product
from treelm.models.som.kernels import NORM_EPSILON, CellTape, CellWeights, SlotTape, differentiable_bank, segmented_norm
from treelm.models.som.plan import CellGraph, IntArray


class ChainTape(CellTape):
    """The slots of a step are a chain of products, and each level of the gradient is seven calls.

    The slots of a step are a chain: h of a node is what the node below has just given, so that only the memory's
    vectors are gathered, and multiplied, once a step. A row of ``joined`` is (d h, d m, h, m, u, f, i, c), and what is
    mixed is one gated linear unit, of the values h, m, u and the gates f, i, c, and a sum. Before their nodes are
    evaluated, ``joined`` holds d and 1, and ``hidden`` the bias b_1, or minus infinity where dropout makes it 0; its
    scale is in W_2.
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
        self.bank, self.mixed = torch.cat([self.bank, vectors]), torch.cat([self.mixed, vectors])
        self.kept = torch.cat([self.kept, kept])
        self.hidden = torch.cat([self.hidden, hidden.log_().add_(self._hidden_bias)])
        self.joined = torch.cat([self.joined, torch.cat([kept, torch.ones_like(kept), torch.empty_like(hidden)], 1)])

    def extend(self, slots: Sequence[tuple[IntArray, IntArray]]) -> None:
        """See ``CellTape``."""
        below, stored = slots[0][0], [second for _, second in slots]
        read = self.bank.index_select(0, to_device(np.concatenate([below, *stored]), self.bank.device))
        self._evaluate(read[: len(below)], read[len(below) :], [len(slot) for slot in stored])

    def sweep(self, graph: CellGraph) -> None:
        """See ``CellTape``."""
        for start, end in pairwise(graph.offsets):
            below, stored = (self.bank.index_select(0, part[start:end]) for part in (graph.first, graph.second))
            self._evaluate(below, stored, [end - start])

    def _evaluate(self, below: Tensor, stored: Tensor, sizes: Sequence[int]) -> None:
        """Evaluate chains: h of the first nodes (n_1, D), m of all (n, D), and how many nodes each slot has."""
        first, end, size = self.num_nodes, self.num_nodes + len(stored), self.bank.shape[1]
        while end > len(self.hidden):
            self._grow(len(self.hidden))
        self.joined[first:end].view(-1, 4, 2, size)[:, :2, 1].mul_(stored[:, None])
        add_product(self.hidden[first:end], self.joined[first:end, size : 2 * size], self._hidden_weight[:, size:].T)
        results = []
        for start, stop in pairwise((first + starts(np.array(sizes))).tolist()):
            joined, hidden = self.joined[start:stop], self.hidden[start:stop]
            joined.view(-1, 4, 2, size)[:, :2, 0].mul_(below[: stop - start, None])
            add_product(hidden, joined[:, :size], self._hidden_weight[:, :size].T)
            multiply_into(joined[:, 4 * size :], hidden.relu_(), self._gate_weight.T, bias=self._gate_bias)
            values = functional.glu(self._values_and_gates(joined), 1)
            mixed = torch.sum(values, (1, 2), out=self.mixed[start:stop])
            below = segmented_norm(mixed, *self._norm, self.segments)
            results.append(below)
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
        pairs = torch.stack([graph.first, graph.second], 1)
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
            d_bank.index_add_(0, pairs[rows].view(-1), d_read.view(-1, size))
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


def begin_tape(leaves: Tensor, weights: CellWeights, *, capacity: int, dropout: float) -> CellTape:
    """A tape over leaves (L, D), with memory for so many nodes, which grows where there are more."""
    kind = ChainTape if few_calls(leaves.device) else SlotTape
    return kind(leaves, weights, capacity=capacity, dropout=dropout)


def sweep_cell(leaves: Tensor, weights: CellWeights, graph: CellGraph, *, dropout: float = 0.0) -> Tensor:
    """The bank (L + n, D) of leaves (L, D) and of the results of a graph's nodes, computed by levels."""
    with torch.no_grad():
        tape = begin_tape(leaves, weights, capacity=len(graph.first), dropout=dropout)
        tape.sweep(graph)
    return differentiable_bank(leaves, weights, graph, tape)


class PairMasks:
    """Dropout of the attachment scorer, drawn for pairs of a position and a candidate as they come.

    On a CPU masks are drawn for each step. On a GPU, where each draw is a call, they are drawn for many pairs at once.
    """

    def __init__(self, like: Tensor, rate: float) -> None:
        """Masks of the type, size and device of the inputs (n, D); on a GPU they are drawn for n pairs at a time."""
        self._like, self._rate, self._num_ahead = like, rate, len(like) if few_calls(like.device) else 0
        self._blocks, self._left = list[Tensor](), like.new_empty(2, 0, like.shape[1])

    def take(self, num_pairs: int) -> Tensor | None:
        """Scaled masks (2, pairs, D) of candidates and hidden units of the next pairs; None without dropout."""
        if not self._rate:
            return None
        if num_pairs > self._left.shape[1]:
            kept, shape = 1 - self._rate, (max(num_pairs, self._num_ahead), self._like.shape[1])
            self._left = torch.stack([self._like.new_empty(shape).bernoulli_(kept).div_(kept) for _ in range(2)])
        taken, self._left = self._left.tensor_split([num_pairs], 1)
        self._blocks.append(taken)
        return taken

    @property
    def taken(self) -> Tensor | None:
        """All masks that were taken, (2, pairs, D); None without dropout."""
        return torch.cat(self._blocks, 1) if self._blocks else None
