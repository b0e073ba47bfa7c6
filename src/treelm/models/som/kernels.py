"""The cell of Shen et al. (2021, Eq. 3) over a whole graph, for a CPU: forward as nodes come, backward by levels.

The gradients of the weights are formed at the end. A node reads h, the candidate in the slot below, and m, the vector
in its own memory slot; with masks of dropout d, d' (1 without):

    hidden = d' ReLU(W_1 d [h; m] + b_1)                                        (4D,)
    [f; i; c; u] = W_2 hidden + b_2;  f, i, c <- sigmoid;  u stays linear       (4D,) gates
    mixed  = f h + i m + c u                                                    (D,)
    normalised = (mixed - mean) inverse_deviation,  result = weight normalised + bias,  each segment by itself

The tape keeps ``hidden``, ``gates``, ``normalised``, ``inverse_deviation`` and the masks, one row a node, and the bank
of vectors that nodes read: leaves first, then results.

Shapes: n nodes, L leaves, D size of a vector, S segments.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from treelm.models.layers.devices import to_device
from treelm.models.layers.packed_weights import PackedProduct
from treelm.models.layers.precision import add_outer, operand
from treelm.models.som.plan import CellGraph, IntArray

NORM_EPSILON = 1e-5
OUTER_ROWS = 2048  # rows that are gathered at a time for the gradient of a weight
PACKED_ROWS = 64  # rows that the packed weights are laid out for; other numbers are about as fast


class CellWeights(NamedTuple):
    """The weights of a cell, and the sizes of the segments of a vector, whose sum is D.

    Weights are dense matrices, with the zero block of a dSOM (semantic units do not reach syntactic ones).
    """

    hidden_weight: Tensor  # (4D, 2D), reads [h; m]
    hidden_bias: Tensor  # (4D)
    gate_weight: Tensor  # (4D, 4D), rows f, i, c, u
    gate_bias: Tensor  # (4D)
    norm_weight: Tensor  # (D)
    norm_bias: Tensor  # (D)
    segments: tuple[int, ...]

    def apply(self, below: Tensor, stored: Tensor) -> Tensor:
        """cell(h, m) by ordinary differentiable operations, without dropout: h and m (..., D) -> (..., D)."""
        hidden = functional.linear(torch.cat([below, stored], -1), self.hidden_weight, self.hidden_bias).relu()
        f, i, c, u = functional.linear(hidden, self.gate_weight, self.gate_bias).chunk(4, -1)
        mixed = f.sigmoid() * below + i.sigmoid() * stored + c.sigmoid() * u
        return segmented_norm(mixed, self.norm_weight, self.norm_bias, self.segments)


def segmented_norm(vectors: Tensor, weight: Tensor, bias: Tensor, segments: tuple[int, ...]) -> Tensor:
    """Layer normalisation of each segment of vectors (..., D) by itself, then weight (D) and bias (D)."""
    if len(segments) == 1:
        return functional.layer_norm(vectors, segments, weight, bias, NORM_EPSILON)
    parts = [
        functional.layer_norm(part, (part.shape[-1],), eps=NORM_EPSILON)
        for part in vectors.split_with_sizes(segments, dim=-1)
    ]
    return torch.cat(parts, -1) * weight + bias


class CellTape(ABC):
    """Evaluations of a cell, as many as come, over a bank of vectors, and what their gradient needs."""

    bank: Tensor  # (leaves and nodes or more, D)
    num_leaves: int
    num_nodes: int

    @abstractmethod
    def sweep(self, graph: CellGraph) -> None:
        """Evaluate all nodes of a graph, level by level."""

    @abstractmethod
    def sort(self, order: Tensor) -> None:
        """Put the nodes into ``order`` (n,): from the order of evaluation to that of levels."""

    @abstractmethod
    def gradient(self, d_bank: Tensor, bank: Tensor, graph: CellGraph) -> tuple[Tensor, ...]:
        """The gradients of the tensors of ``CellWeights``, of nodes in the order of a graph.

        ``d_bank`` is what reaches the bank from elsewhere, and then also what reaches it from the nodes.
        """


class SlotTape(CellTape):
    """Each slot of a step or each level is a few operations on rows that stay in the cache: for a CPU."""

    def __init__(self, leaves: Tensor, weights: CellWeights, *, capacity: int, dropout: float) -> None:
        """Begin with leaves (L, D). Memory is for so many nodes at first, and is doubled where there are more."""
        size = leaves.shape[1]
        self.dropout, self.segments = dropout, weights.segments
        self.num_leaves, self.num_nodes, self._num_drawn = len(leaves), 0, 0
        self.is_spent = False  # whether a backward pass has overwritten the gates
        self.bank = torch.cat([leaves.detach(), leaves.new_empty(capacity, size)])
        self.hidden = leaves.new_empty(capacity, 4 * size)
        self.gates = leaves.new_empty(capacity, 4 * size)
        self.normalised = leaves.new_empty(capacity, size)
        self.inverse_deviation = leaves.new_empty(capacity, len(weights.segments))  # 1 / sqrt(variance + NORM_EPSILON)
        self.input_mask = leaves.new_empty(capacity if dropout else 0, 2 * size)  # scaled by 1 / (1 - dropout)
        self.hidden_mask = leaves.new_empty(capacity if dropout else 0, 4 * size)
        self.hidden_weight = PackedProduct(operand(weights.hidden_weight.detach()), PACKED_ROWS)
        self.gate_weight = PackedProduct(operand(weights.gate_weight.detach()), PACKED_ROWS)
        biases = weights.hidden_bias, weights.gate_bias, weights.norm_weight, weights.norm_bias
        self.hidden_bias, self.gate_bias, self.norm_weight, self.norm_bias = (one.detach() for one in biases)

    _BY_NODE = ("hidden", "gates", "normalised", "inverse_deviation", "input_mask", "hidden_mask")

    def extend(self, slots: Sequence[tuple[IntArray, IntArray]]) -> None:
        """Evaluate the nodes of one step, slot by slot as ``MemoryGraph.step`` gives them."""
        pairs = to_device(np.concatenate([np.stack(pair, 1) for pair in slots]), self.bank.device)
        for slot in torch.split(pairs, [len(first) for first, _ in slots]):
            self._evaluate(slot)

    def sweep(self, graph: CellGraph) -> None:
        """See ``CellTape``."""
        self._draw_masks(slice(0, len(graph.reads)))
        for start, end in pairwise(graph.offsets):
            self._evaluate(graph.reads[start:end])

    def _evaluate(self, pairs: Tensor) -> None:
        """Evaluate the next nodes, which read these vectors of the bank as h and m, (n, 2)."""
        rows = slice(self.num_nodes, self.num_nodes + len(pairs))
        while rows.stop > len(self.hidden):
            for name in ("bank", *self._BY_NODE):
                setattr(self, name, torch.cat([getattr(self, name), torch.empty_like(getattr(self, name))]))
        if rows.stop > self._num_drawn:
            self._draw_masks(rows)
        size, hidden, gates = self.bank.shape[1], self.hidden[rows], self.gates[rows]
        read = self.bank.index_select(0, pairs.view(-1)).view(len(pairs), 2 * size)
        below, stored = read.chunk(2, 1)
        inputs = read * self.input_mask[rows] if self.dropout else read
        self.hidden_weight.forward.multiply_into(hidden, inputs, bias=self.hidden_bias)
        hidden.relu_()
        if self.dropout:
            hidden *= self.hidden_mask[rows]
        self.gate_weight.forward.multiply_into(gates, hidden, bias=self.gate_bias)
        gates[:, : 3 * size].sigmoid_()
        f, i, c, u = gates.chunk(4, 1)
        mixed = torch.mul(c, u, out=self.normalised[rows])
        mixed.addcmul_(f, below).addcmul_(i, stored)
        parts = zip(
            mixed.split_with_sizes(self.segments, 1), torch.split(self.inverse_deviation[rows], 1, 1), strict=True
        )
        for part, inverse_deviation in parts:
            variance, mean = torch.var_mean(part, 1, correction=0, keepdim=True)
            inverse = variance.add_(NORM_EPSILON).rsqrt_()
            part.sub_(mean).mul_(inverse)
            inverse_deviation.copy_(inverse)
        out = self.bank[self.num_leaves + rows.start : self.num_leaves + rows.stop]
        torch.addcmul(self.norm_bias, mixed, self.norm_weight, out=out)
        self.num_nodes = rows.stop

    def _draw_masks(self, rows: slice) -> None:
        """Draw the dropout masks of these nodes, else they are drawn when nodes are evaluated."""
        for mask in (self.input_mask[rows], self.hidden_mask[rows]):
            if self.dropout:
                mask.bernoulli_(1 - self.dropout).mul_(1 / (1 - self.dropout))
        self._num_drawn = rows.stop

    def sort(self, order: Tensor) -> None:
        """See ``CellTape``."""
        for name in self._BY_NODE:
            old = getattr(self, name)
            setattr(self, name, old.index_select(0, order) if len(old) else old)
        vectors = self.num_leaves + order
        self.bank = torch.cat([self.bank[: self.num_leaves], self.bank.index_select(0, vectors)])

    def gradient(self, d_bank: Tensor, bank: Tensor, graph: CellGraph) -> tuple[Tensor, ...]:
        """See ``CellTape``."""
        if self.is_spent:
            raise RuntimeError("a second backward pass through one reading of a SOM: read the batch again before it")
        self.is_spent = True
        d_hidden = torch.empty_like(self.hidden)
        for start, end in reversed(list(pairwise(graph.offsets))):
            self._level_gradient(d_bank, d_hidden, bank, slice(start, end), graph)
        # _level_gradient has overwritten the gates by the gradient before the sigmoid.
        d_gates, d_results = self.gates, d_bank[self.num_leaves :]
        size, dtype = bank.shape[1], self.gate_weight.weight.dtype
        d_hidden_weight, d_gate_weight = bank.new_zeros(4 * size, 2 * size), bank.new_zeros(4 * size, 4 * size)
        add_outer(d_gate_weight, d_gates, self.hidden, dtype=dtype)
        for start in range(0, len(d_hidden), OUTER_ROWS):
            rows = slice(start, start + OUTER_ROWS)
            inputs = bank.index_select(0, graph.reads[rows].view(-1)).view(-1, 2 * size)
            if self.dropout:
                inputs *= self.input_mask[rows]
            add_outer(d_hidden_weight, d_hidden[rows], inputs, dtype=dtype)
        d_norm = (d_results * self.normalised).sum(0), d_results.sum(0)
        return d_hidden_weight, d_hidden.sum(0), d_gate_weight, d_gates.sum(0), *d_norm

    def _level_gradient(self, d_bank: Tensor, d_hidden: Tensor, bank: Tensor, rows: slice, graph: CellGraph) -> None:
        """Gradients of one level's nodes: fills ``d_hidden`` (before ReLU) and the gates, adds to ``d_bank``."""
        size = bank.shape[1]
        first, second = graph.reads[rows].unbind(1)
        below, stored = bank.index_select(0, first), bank.index_select(0, second)
        d_mixed = d_bank[self.num_leaves + rows.start : self.num_leaves + rows.stop] * self.norm_weight
        _norm_backward(d_mixed, self.normalised[rows], self.inverse_deviation[rows], self.segments)
        f, i, c, u = self.gates[rows].chunk(4, 1)
        d_below, d_stored, d_last = d_mixed * f, d_mixed * i, d_mixed * c
        for gate, value in ((f, below), (i, stored), (c, u)):
            gate.mul_(1 - gate).mul_(d_mixed).mul_(value)
        u.copy_(d_last)
        d_rows = d_hidden[rows]
        self.gate_weight.backward.multiply_into(d_rows, self.gates[rows])
        torch.ops.aten.threshold_backward.grad_input(d_rows, self.hidden[rows], 0, grad_input=d_rows)
        d_inputs = bank.new_empty(len(below), 2 * size)
        if self.dropout:  # hidden is 0 where ReLU or dropout made it 0, so only the dropout scale is missing
            d_rows *= 1 / (1 - self.dropout)
        self.hidden_weight.backward.multiply_into(d_inputs, d_rows)
        if self.dropout:
            d_inputs *= self.input_mask[rows]
        d_bank.index_add_(0, first, d_below.add_(d_inputs[:, :size]))
        d_bank.index_add_(0, second, d_stored.add_(d_inputs[:, size:]))


def _norm_backward(gradient: Tensor, normalised: Tensor, inverse_deviation: Tensor, segments: tuple[int, ...]) -> None:
    """Turn the gradient of normalised vectors (n, D) into that of the vectors, in place."""
    parts = zip(
        gradient.split_with_sizes(segments, 1),
        normalised.split_with_sizes(segments, 1),
        inverse_deviation.unbind(1),
        strict=True,
    )
    for part, value, inverse in parts:
        along = (part * value).mean(1, keepdim=True)
        part.sub_(part.mean(1, keepdim=True)).addcmul_(value, along, value=-1).mul_(inverse[:, None])


def differentiable_bank(leaves: Tensor, weights: CellWeights, graph: CellGraph, tape: CellTape) -> Tensor:
    """The bank of a tape whose nodes stand in the order of a graph, as a function of leaves and weights."""
    if not torch.is_grad_enabled():
        return tape.bank
    bank: Tensor = _CellSweep.apply(leaves, *weights[:6], graph, tape)  # type: ignore[no-untyped-call]
    return bank


class _CellSweep(torch.autograd.Function):
    """The forward pass is on the tape; the backward pass goes through the levels, the last one first."""

    @staticmethod
    def forward(
        ctx: Any,
        leaves: Tensor,
        hidden_weight: Tensor,
        hidden_bias: Tensor,
        gate_weight: Tensor,
        gate_bias: Tensor,
        norm_weight: Tensor,
        norm_bias: Tensor,
        graph: CellGraph,
        tape: CellTape,
    ) -> Tensor:
        ctx.graph, ctx.tape = graph, tape
        bank, tape.bank = tape.bank, tape.bank[:0]  # what the result knows must not hold the result: a cycle
        ctx.save_for_backward(bank)
        return bank

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (bank,) = ctx.saved_tensors
        d_bank = gradients[0].clone()
        d_weights = ctx.tape.gradient(d_bank, bank, ctx.graph)
        return d_bank[: ctx.tape.num_leaves], *d_weights, None, None
