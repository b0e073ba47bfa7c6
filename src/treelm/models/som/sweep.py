"""The cell over a whole graph at once: forward and backward level by level, weight gradients in one product each.

The forward pass may have happened already, node by node, while decisions were being made: then its activations are on
the tape and only the gradient is computed by levels.

A slot that does not change is read again at every step, and predictions start from the same prefix states. Without
dropout such a vector's half of the cell's first product is the same each time, and is computed only once; so is the way
back, where the gradients of all its readers are added before they are multiplied.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from treelm.models.layers.devices import plan_to_device
from treelm.models.layers.packed import PackedProduct
from treelm.models.layers.precision import add_outer, operand
from treelm.models.som.cells import NORM_EPSILON, CellWeights
from treelm.models.som.graph import IntArray

# Legend: n nodes, L leaves, D size of a vector, S segments. The bank (L + n, D) holds leaves, then results of nodes.

OUTER_ROWS = 2048  # rows that are gathered at a time for the gradient of a weight
PACKED_ROWS = 64  # the number of rows for which weights are packed; others are as fast


class Shared(NamedTuple):
    """The different vectors that the nodes of a graph read in one place, in the order of their first use."""

    vectors: Tensor  # (m,) numbers in the bank
    place: Tensor | None  # (n,) which of them each node reads; None if node i reads vectors[i] and m = n
    offsets: list[int]  # (levels + 1,) those that level k is the first to read are offsets[k]:offsets[k + 1]


def share(numbers: IntArray, offsets: IntArray) -> Shared:
    """Vectors shared among numbers (n,) that nodes read, whose levels are bounded by ``offsets`` (levels + 1,)."""
    different, first_use, inverse = np.unique(numbers, return_index=True, return_inverse=True)
    if len(different) == len(numbers):
        return Shared(torch.from_numpy(numbers), None, offsets.tolist())
    order = np.argsort(first_use)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return Shared(
        vectors=torch.from_numpy(different[order]),
        place=torch.from_numpy(rank[inverse.reshape(-1)]),
        offsets=np.searchsorted(first_use[order], offsets).tolist(),
    )


class SweepPlan(NamedTuple):
    """A graph whose nodes are sorted by level."""

    first: Tensor  # (n,) the vector in the bank that each node reads as h
    second: Tensor  # (n,) the vector that it reads as m
    offsets: list[int]  # (levels + 1,)
    shared: tuple[Shared, Shared]  # of first and second


def plan_sweep(first: IntArray, second: IntArray, offsets: IntArray, device: torch.device) -> SweepPlan:
    """The plan of nodes (n,) that are numbered by level."""
    plan = SweepPlan(
        first=torch.from_numpy(first),
        second=torch.from_numpy(second),
        offsets=offsets.tolist(),
        shared=(share(first, offsets), share(second, offsets)),
    )
    return plan_to_device(plan, device)


class CellTape:
    """Activations that the gradient of n nodes needs. Grows by doubling where their number is not known before."""

    def __init__(self, like: Tensor, segments: tuple[int, ...], *, capacity: int, dropout: float) -> None:
        """Allocate nodes of vectors like ``like`` (..., D), and for their masks if there is dropout."""
        self.dropout = dropout
        self.is_filled = False
        size = like.shape[-1]
        self.hidden = like.new_empty(capacity, 4 * size)  # after ReLU and dropout
        self.gates = like.new_empty(capacity, 4 * size)  # sigmoids of f, i, c; then u
        self.normalised = like.new_empty(capacity, size)
        self.deviation = like.new_empty(capacity, len(segments))  # its inverse
        self.input_mask = like.new_empty(capacity if dropout else 0, 2 * size)  # scaled by 1 / (1 - dropout)
        self.hidden_mask = like.new_empty(capacity if dropout else 0, 4 * size)

    _FIELDS = ("hidden", "gates", "normalised", "deviation", "input_mask", "hidden_mask")

    def reserve(self, num_nodes: int) -> None:
        """Allocate this many nodes."""
        capacity = len(self.hidden)
        if num_nodes > capacity:
            for name in self._FIELDS:
                old = getattr(self, name)
                if len(old):
                    new = old.new_empty(max(num_nodes, 2 * capacity), old.shape[1])
                    new[:capacity] = old
                    setattr(self, name, new)

    def draw_masks(self, rows: slice) -> None:
        """Draw the dropout masks of these nodes."""
        if self.dropout:
            for mask in (self.input_mask[rows], self.hidden_mask[rows]):
                mask.bernoulli_(1 - self.dropout).mul_(1 / (1 - self.dropout))

    def reorder(self, order: Tensor, *, masks_only: bool) -> None:
        """Sort the nodes (n,) anew, or only their masks if the rest will be computed again."""
        for name in self._FIELDS[4:] if masks_only else self._FIELDS:
            old = getattr(self, name)
            setattr(self, name, old.index_select(0, order) if len(old) else old)
        if masks_only:
            for name in self._FIELDS[:4]:
                old = getattr(self, name)
                setattr(self, name, old.new_empty(len(order), old.shape[1]))
        self.is_filled = not masks_only


class CellKernel:
    """A cell's weights, ready for evaluating many nodes without a graph of autograd."""

    def __init__(self, weights: CellWeights) -> None:
        """Round the matrices once, as the current precision multiplies them."""
        self.segments = weights.segments
        tensors = [tensor.detach() for tensor in weights.tensors()]
        hidden_weight, self.hidden_bias, gate_weight, self.gate_bias, self.norm_weight, self.norm_bias = tensors
        hidden_weight, gate_weight = operand(hidden_weight), operand(gate_weight)
        self.dtype = hidden_weight.dtype
        self.both = PackedProduct(hidden_weight, PACKED_ROWS)  # reads [h; m]
        below, stored = hidden_weight.chunk(2, 1)
        self.halves = PackedProduct(below, PACKED_ROWS), PackedProduct(stored, PACKED_ROWS)  # read h, read m
        self.gates = PackedProduct(gate_weight, PACKED_ROWS)

    def evaluate_into(self, out: Tensor, below: Tensor, stored: Tensor, tape: CellTape, rows: slice) -> None:
        """out = cell(h, m) of some nodes, all (rows, D); what the gradient needs goes on the tape, at ``rows``."""
        inputs = torch.cat([below, stored], 1)
        if tape.dropout:
            inputs *= tape.input_mask[rows]
        self.both.forward.multiply_into(tape.hidden[rows], inputs, bias=self.hidden_bias)
        self.finish_into(out, below, stored, tape, rows)

    def finish_into(self, out: Tensor, below: Tensor, stored: Tensor, tape: CellTape, rows: slice) -> None:
        """The same where W_1 [h; m] + b_1 is already at ``tape.hidden[rows]``."""
        size = below.shape[1]
        hidden, gates = tape.hidden[rows], tape.gates[rows]
        hidden.relu_()
        if tape.dropout:
            hidden *= tape.hidden_mask[rows]
        self.gates.forward.multiply_into(gates, hidden, bias=self.gate_bias)
        gates[:, : 3 * size].sigmoid_()
        f, i, c, u = gates.chunk(4, 1)
        mixed = torch.mul(c, u, out=tape.normalised[rows])
        mixed.addcmul_(f, below).addcmul_(i, stored)
        for part, deviation in zip(
            mixed.split_with_sizes(self.segments, 1), tape.deviation[rows].unbind(1), strict=True
        ):
            variance, mean = torch.var_mean(part, 1, correction=0, keepdim=True)
            inverse = variance.add_(NORM_EPSILON).rsqrt_()
            part.sub_(mean).mul_(inverse)
            deviation.copy_(inverse[:, 0])
        torch.addcmul(self.norm_bias, mixed, self.norm_weight, out=out)


class _CellSweep(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        leaves: Tensor,
        results: Tensor | None,
        hidden_weight: Tensor,
        hidden_bias: Tensor,
        gate_weight: Tensor,
        gate_bias: Tensor,
        norm_weight: Tensor,
        norm_bias: Tensor,
        plan: SweepPlan,
        tape: CellTape,
        kernel: CellKernel,
    ) -> Tensor:
        num_leaves = len(leaves)
        bank = leaves.new_empty(num_leaves + len(plan.first), leaves.shape[1])
        bank[:num_leaves] = leaves
        if results is not None:
            bank[num_leaves:] = results
        else:
            _sweep_forward(bank, num_leaves, plan, tape, kernel)
        ctx.save_for_backward(bank, hidden_weight, gate_weight)
        ctx.plan, ctx.tape, ctx.kernel, ctx.num_leaves = plan, tape, kernel, num_leaves
        return bank

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        bank, hidden_weight, gate_weight = ctx.saved_tensors
        plan, tape, num_leaves = ctx.plan, ctx.tape, ctx.num_leaves
        d_bank = gradients[0].clone()
        d_hidden = torch.empty_like(tape.hidden)
        d_projected = _shared_rows(plan, tape, d_hidden)
        for level in range(len(plan.offsets) - 2, -1, -1):
            _level_backward(d_bank, d_hidden, d_projected, bank, level, ctx)
        d_gates, d_results = tape.gates, d_bank[num_leaves:]  # the gates made room for their gradient
        d_hidden_weight, d_gate_weight = torch.zeros_like(hidden_weight), torch.zeros_like(gate_weight)
        add_outer(d_gate_weight, d_gates, tape.hidden, dtype=ctx.kernel.dtype)
        if tape.dropout:
            _add_outer_masked(d_hidden_weight, d_hidden, bank, ctx)
        else:
            for half, shared, gradient in zip(d_hidden_weight.chunk(2, 1), plan.shared, d_projected, strict=True):
                outer = d_hidden if gradient is None else gradient
                add_outer(half, outer, bank.index_select(0, shared.vectors), dtype=ctx.kernel.dtype)
        d_norm_weight = (d_results * tape.normalised).sum(0)
        weights = d_hidden_weight, d_hidden.sum(0), d_gate_weight, d_gates.sum(0), d_norm_weight, d_results.sum(0)
        return d_bank[:num_leaves], None, *weights, None, None, None


def _shared_rows(plan: SweepPlan, tape: CellTape, like: Tensor) -> list[Tensor | None]:
    """Zeros (m, 4D) for what is shared of h and of m; None where nothing is."""
    return [
        None if tape.dropout or shared.place is None else like.new_zeros(len(shared.vectors), like.shape[1])
        for shared in plan.shared
    ]


def _add_outer_masked(d_weight: Tensor, d_hidden: Tensor, bank: Tensor, ctx: Any) -> None:
    plan, tape = ctx.plan, ctx.tape
    for start in range(0, len(plan.first), OUTER_ROWS):
        rows = slice(start, start + OUTER_ROWS)
        inputs = torch.cat([bank.index_select(0, plan.first[rows]), bank.index_select(0, plan.second[rows])], 1)
        add_outer(d_weight, d_hidden[rows], inputs.mul_(tape.input_mask[rows]), dtype=ctx.kernel.dtype)


def _sweep_forward(bank: Tensor, num_leaves: int, plan: SweepPlan, tape: CellTape, kernel: CellKernel) -> None:
    projected = _shared_rows(plan, tape, tape.hidden)
    for level, (start, end) in enumerate(pairwise(plan.offsets)):
        rows, out = slice(start, end), bank[num_leaves + start : num_leaves + end]
        below = bank.index_select(0, plan.first[rows])
        stored = bank.index_select(0, plan.second[rows])
        if tape.dropout:
            kernel.evaluate_into(out, below, stored, tape, rows)
            continue
        hidden = tape.hidden[rows]
        hidden.copy_(kernel.hidden_bias.expand_as(hidden))
        for product, shared, table, vectors in zip(kernel.halves, plan.shared, projected, (below, stored), strict=True):
            if table is None or shared.place is None:
                product.forward.multiply_into(hidden, vectors, bias=hidden)
            else:
                new = slice(shared.offsets[level], shared.offsets[level + 1])
                product.forward.multiply_into(table[new], bank.index_select(0, shared.vectors[new]))
                hidden += table.index_select(0, shared.place[rows])
        kernel.finish_into(out, below, stored, tape, rows)


def _level_backward(
    d_bank: Tensor, d_hidden: Tensor, d_projected: list[Tensor | None], bank: Tensor, level: int, ctx: Any
) -> None:
    """Gradients of one level's nodes: fills ``d_hidden`` (before ReLU) and the tape's gates, adds to ``d_bank``."""
    plan, tape, kernel, num_leaves = ctx.plan, ctx.tape, ctx.kernel, ctx.num_leaves
    rows = slice(plan.offsets[level], plan.offsets[level + 1])
    below = bank.index_select(0, plan.first[rows])
    stored = bank.index_select(0, plan.second[rows])
    d_mixed = d_bank[num_leaves + rows.start : num_leaves + rows.stop] * kernel.norm_weight
    _norm_backward(d_mixed, tape.normalised[rows], tape.deviation[rows], kernel.segments)
    f, i, c, u = tape.gates[rows].chunk(4, 1)
    d_below, d_stored, d_last = d_mixed * f, d_mixed * i, d_mixed * c
    for gate, value in ((f, below), (i, stored), (c, u)):
        gate.mul_(1 - gate).mul_(d_mixed).mul_(value)
    u.copy_(d_last)
    d_rows = d_hidden[rows]
    kernel.gates.backward.multiply_into(d_rows, tape.gates[rows])
    torch.ops.aten.threshold_backward.grad_input(d_rows, tape.hidden[rows], 0, grad_input=d_rows)
    if tape.dropout:
        d_rows *= 1 / (1 - tape.dropout)
        d_inputs = torch.empty(len(below), 2 * below.shape[1], dtype=bank.dtype, device=bank.device)
        kernel.both.backward.multiply_into(d_inputs, d_rows)
        d_inputs *= tape.input_mask[rows]
        d_below += d_inputs[:, : below.shape[1]]
        d_stored += d_inputs[:, below.shape[1] :]
    else:
        for side, d_vectors in enumerate((d_below, d_stored)):
            _half_backward(d_bank, d_vectors, d_rows, d_projected[side], side, level, ctx)
    d_bank.index_add_(0, plan.first[rows], d_below)
    d_bank.index_add_(0, plan.second[rows], d_stored)


def _half_backward(
    d_bank: Tensor, d_vectors: Tensor, d_rows: Tensor, d_projected: Tensor | None, side: int, level: int, ctx: Any
) -> None:
    """Gradient of h (side 0) or m (1) through the first product: of a shared vector when its first reader's turn comes.

    By then all its other readers have added theirs, because they stand on the same level or above.
    """
    product, shared = ctx.kernel.halves[side].backward, ctx.plan.shared[side]
    if d_projected is None:
        product.multiply_into(d_vectors, d_rows, bias=d_vectors)
        return
    rows = slice(ctx.plan.offsets[level], ctx.plan.offsets[level + 1])
    d_projected.index_add_(0, shared.place[rows], d_rows)
    done = slice(shared.offsets[level], shared.offsets[level + 1])
    d_shared = d_vectors.new_empty(done.stop - done.start, d_vectors.shape[1])
    product.multiply_into(d_shared, d_projected[done])
    d_bank.index_add_(0, shared.vectors[done], d_shared)


def _norm_backward(gradient: Tensor, normalised: Tensor, deviation: Tensor, segments: tuple[int, ...]) -> None:
    """Turn the gradient of normalised vectors (n, D) into that of the vectors, in place."""
    parts = zip(
        gradient.split_with_sizes(segments, 1),
        normalised.split_with_sizes(segments, 1),
        deviation.unbind(1),
        strict=True,
    )
    for part, value, inverse in parts:
        along = (part * value).mean(1, keepdim=True)
        part.sub_(part.mean(1, keepdim=True)).addcmul_(value, along, value=-1).mul_(inverse[:, None])


def sweep_cell(
    leaves: Tensor,
    weights: CellWeights,
    plan: SweepPlan,
    *,
    tape: CellTape | None = None,
    results: Tensor | None = None,
) -> Tensor:
    """The bank (L + n, D) of a graph over leaves (L, D).

    ``tape`` may bring dropout masks, in the plan's order, and with ``results`` (n, D) also the whole forward pass.
    """
    kernel = CellKernel(weights)
    if tape is None:
        tape = CellTape(leaves, weights.segments, capacity=len(plan.first), dropout=0.0)
    if results is None and not torch.is_grad_enabled():
        bank = torch.cat([leaves, leaves.new_empty(len(plan.first), leaves.shape[1])])
        _sweep_forward(bank, len(leaves), plan, tape, kernel)
        return bank
    swept: Tensor = _CellSweep.apply(leaves, results, *weights.tensors(), plan, tape, kernel)  # type: ignore[no-untyped-call]
    return swept
