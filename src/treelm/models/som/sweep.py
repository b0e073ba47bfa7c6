"""The cell of a whole graph at once: forward and backward level by level, weight gradients in one product each.

The forward pass may have happened already, node by node, while decisions were being made: then its activations are on
the tape and only the gradient is computed by levels.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from treelm.models.layers.precision import add_outer, multiply_into, operand
from treelm.models.som.cells import NORM_EPSILON, CellWeights

# Legend: n nodes, L leaves, D size of a vector, S segments. The bank (L + n, D) holds leaves, then results of nodes.

OUTER_ROWS = 2048  # rows that are gathered at a time for the gradient of a weight


class SweepPlan(NamedTuple):
    """A graph whose nodes are sorted by level."""

    first: Tensor  # (n,) the vector in the bank that each node reads as h
    second: Tensor  # (n,) the vector that it reads as m
    offsets: list[int]  # (levels + 1,)


class Tape:
    """What the gradient of n nodes needs. Grows by doubling where the number of nodes is not known before."""

    def __init__(self, like: Tensor, segments: tuple[int, ...], *, capacity: int, dropout: float) -> None:
        """Make room for nodes of vectors like ``like`` (..., D), and for their masks if there is dropout."""
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
        """Make room for so many nodes."""
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
        self.hidden_weight, self.gate_weight = operand(tensors[0]), operand(tensors[2])
        self.hidden_bias, self.gate_bias, self.norm_weight, self.norm_bias = (
            tensors[1],
            tensors[3],
            tensors[4],
            tensors[5],
        )

    def evaluate_into(self, out: Tensor, below: Tensor, stored: Tensor, tape: Tape, rows: slice) -> None:
        """out = cell(h, m) of some nodes, all (rows, D); what the gradient needs goes on the tape, at ``rows``."""
        size = below.shape[1]
        inputs = torch.cat([below, stored], 1)
        hidden, gates = tape.hidden[rows], tape.gates[rows]
        if tape.dropout:
            inputs *= tape.input_mask[rows]
        multiply_into(hidden, inputs, self.hidden_weight.T, bias=self.hidden_bias)
        hidden.relu_()
        if tape.dropout:
            hidden *= tape.hidden_mask[rows]
        multiply_into(gates, hidden, self.gate_weight.T, bias=self.gate_bias)
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
        tape: Tape,
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
        for level in range(len(plan.offsets) - 2, -1, -1):
            rows = slice(plan.offsets[level], plan.offsets[level + 1])
            _level_backward(d_bank, d_hidden[rows], bank, rows, ctx)
        d_gates, d_results = tape.gates, d_bank[num_leaves:]  # the gates made room for their gradient
        d_hidden_weight, d_gate_weight = torch.zeros_like(hidden_weight), torch.zeros_like(gate_weight)
        dtype = ctx.kernel.hidden_weight.dtype
        add_outer(d_gate_weight, d_gates, tape.hidden, dtype=dtype)
        for start in range(0, len(plan.first), OUTER_ROWS):
            rows = slice(start, start + OUTER_ROWS)
            inputs = torch.cat([bank.index_select(0, plan.first[rows]), bank.index_select(0, plan.second[rows])], 1)
            if tape.dropout:
                inputs *= tape.input_mask[rows]
            add_outer(d_hidden_weight, d_hidden[rows], inputs, dtype=dtype)
        d_norm_weight = (d_results * tape.normalised).sum(0)
        weights = d_hidden_weight, d_hidden.sum(0), d_gate_weight, d_gates.sum(0), d_norm_weight, d_results.sum(0)
        return d_bank[:num_leaves], None, *weights, None, None, None


def _sweep_forward(bank: Tensor, num_leaves: int, plan: SweepPlan, tape: Tape, kernel: CellKernel) -> None:
    for start, end in zip(plan.offsets[:-1], plan.offsets[1:], strict=True):
        rows = slice(start, end)
        below = bank.index_select(0, plan.first[rows])
        stored = bank.index_select(0, plan.second[rows])
        kernel.evaluate_into(bank[num_leaves + start : num_leaves + end], below, stored, tape, rows)


def _level_backward(d_bank: Tensor, d_hidden: Tensor, bank: Tensor, rows: slice, ctx: Any) -> None:
    """Gradients of one level's nodes: fills ``d_hidden`` (before ReLU) and the tape's gates, adds to ``d_bank``."""
    plan, tape, kernel, num_leaves = ctx.plan, ctx.tape, ctx.kernel, ctx.num_leaves
    below = bank.index_select(0, plan.first[rows])
    stored = bank.index_select(0, plan.second[rows])
    d_mixed = d_bank[num_leaves + rows.start : num_leaves + rows.stop] * kernel.norm_weight
    _norm_backward(d_mixed, tape.normalised[rows], tape.deviation[rows], kernel.segments)
    f, i, c, u = tape.gates[rows].chunk(4, 1)
    d_below, d_stored, d_last = d_mixed * f, d_mixed * i, d_mixed * c
    for gate, value in ((f, below), (i, stored), (c, u)):
        gate.mul_(1 - gate).mul_(d_mixed).mul_(value)
    u.copy_(d_last)
    multiply_into(d_hidden, tape.gates[rows], kernel.gate_weight)
    torch.ops.aten.threshold_backward.grad_input(d_hidden, tape.hidden[rows], 0, grad_input=d_hidden)
    if tape.dropout:
        d_hidden *= 1 / (1 - tape.dropout)
    d_inputs = torch.empty(len(below), 2 * below.shape[1], dtype=bank.dtype, device=bank.device)
    multiply_into(d_inputs, d_hidden, kernel.hidden_weight)
    if tape.dropout:
        d_inputs *= tape.input_mask[rows]
    d_bank.index_add_(0, plan.first[rows], d_below.add_(d_inputs[:, : below.shape[1]]))
    d_bank.index_add_(0, plan.second[rows], d_stored.add_(d_inputs[:, below.shape[1] :]))


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
    leaves: Tensor, weights: CellWeights, plan: SweepPlan, *, tape: Tape | None = None, results: Tensor | None = None
) -> Tensor:
    """The bank (L + n, D) of a graph over leaves (L, D).

    ``tape`` may bring dropout masks, in the plan's order, and with ``results`` (n, D) also the whole forward pass.
    """
    kernel = CellKernel(weights)
    if tape is None:
        tape = Tape(leaves, weights.segments, capacity=len(plan.first), dropout=0.0)
    if results is None and not torch.is_grad_enabled():
        bank = torch.cat([leaves, leaves.new_empty(len(plan.first), leaves.shape[1])])
        _sweep_forward(bank, len(leaves), plan, tape, kernel)
        return bank
    swept: Tensor = _CellSweep.apply(leaves, results, *weights.tensors(), plan, tape, kernel)  # type: ignore[no-untyped-call]
    return swept
