"""LSTM composition of all constituents of a batch, level by level (schedule: ``chains``)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from treelm.models.layers.levels import blocks
from treelm.models.layers.lstm import LSTMWeights, lstm_cell_gradient_into, lstm_cell_into
from treelm.models.layers.precision import SLACK_ROWS, add_outer, multiply_into, operand, padded
from treelm.models.rnng.chains import Chains, Direction
from treelm.models.rnng.composition import LSTMComposition

# Legend: M steps in each direction, F families, L given vectors, E size of a vector. All in schedule order.

BLOCK_ROWS = 256  # a multiple of SLACK_ROWS

Blocks = list[list[tuple[int, int]]]  # of every level: first and end of each block


class DirectionPlan(NamedTuple):
    """``Direction``, ready for computing."""

    inputs: Tensor  # (M,) the vector that each step reads
    previous: Tensor  # (M,) the step before; unused in level 0, which reads the nonterminals
    last: Tensor  # (F,) each family's last step
    blocks: Blocks


class Plan(NamedTuple):
    """``Chains``, ready for computing."""

    forward: DirectionPlan
    backward: DirectionPlan
    families: Blocks


def plan_composition(chains: Chains, vector_of_action: NDArray[np.int64], device: torch.device) -> Plan:
    """Say which vector each step reads, given the vector that each action pushes."""

    def put(array: NDArray[np.int64]) -> Tensor:
        return torch.from_numpy(array).to(device)

    def plan(steps: Direction) -> DirectionPlan:
        vectors = vector_of_action[steps.inputs]
        return DirectionPlan(put(vectors), put(steps.previous), put(steps.last), _blocks_by_level(steps.offsets))

    return Plan(plan(chains.forward), plan(chains.backward), _blocks_by_level(chains.offsets))


def _blocks_by_level(offsets: NDArray[np.int64]) -> Blocks:
    bounds = offsets.tolist()
    return [blocks(bounds[level : level + 2], BLOCK_ROWS) for level in range(len(bounds) - 1)]


class _Reading:
    """One direction's LSTM: its steps forward through the levels, and their gradient back."""

    def __init__(self, plan: DirectionPlan, weight: Tensor, bias: Tensor, new: Callable[..., Tensor]) -> None:
        self.plan, self.weight, self.bias = plan, weight, bias  # weight (4E, 2E): of the input and of the state
        num_steps, size = len(plan.inputs), weight.shape[1] // 2
        self.size = size
        self.inputs = new(num_steps + SLACK_ROWS, 2 * size)  # [x; h of the step before]
        self.gates = new(num_steps + SLACK_ROWS, 4 * size)
        self.cell_before, self.cell, self.tanh_cell, self.hidden = (new(num_steps, size) for _ in range(4))
        self.new = new

    def compute(self, level: int, vectors: Tensor) -> None:
        """Take the steps of a level. Products are padded: what they write beyond a block is overwritten later."""
        size, width = self.size, self.size if level == 0 else 2 * self.size
        for start, end in self.plan.blocks[level]:
            rows = slice(start, end)
            torch.index_select(vectors, 0, self.plan.inputs[rows], out=self.inputs[rows, :size])
            if level == 0:
                self.inputs[rows, size:] = self.cell_before[rows] = 0
            else:
                torch.index_select(self.hidden, 0, self.plan.previous[rows], out=self.inputs[rows, size:])
                torch.index_select(self.cell, 0, self.plan.previous[rows], out=self.cell_before[rows])
            more = slice(start, start + padded(end - start))
            multiply_into(self.gates[more], self.inputs[more, :width], self.weight[:, :width].T, bias=self.bias)
            states = self.cell_before[rows], self.cell[rows], self.tanh_cell[rows], self.hidden[rows]
            lstm_cell_into(self.gates[rows], *states)

    def begin_gradient(self) -> None:
        """Make room for gradients. Each step but a last one is followed by just one, so most need no zeros."""
        self.d_hidden, self.d_cell = torch.empty_like(self.hidden), torch.zeros_like(self.cell)
        self.d_gates = torch.empty_like(self.gates)
        self.d_gates[len(self.hidden) :] = 0
        self.d_inputs = self.new(BLOCK_ROWS, 2 * self.size)

    def propagate(self, level: int, d_vectors: Tensor) -> None:
        """The gradient of ``compute``; adds to that of the vectors."""
        size, width = self.size, self.size if level == 0 else 2 * self.size
        for start, end in reversed(self.plan.blocks[level]):
            rows, num_rows = slice(start, end), end - start
            states = self.gates[rows], self.cell_before[rows], self.tanh_cell[rows]
            lstm_cell_gradient_into(self.d_gates[rows], self.d_cell[rows], self.d_hidden[rows], *states)
            num = padded(num_rows)
            multiply_into(self.d_inputs[:num, :width], self.d_gates[start : start + num], self.weight[:, :width])
            d_vectors.index_add_(0, self.plan.inputs[rows], self.d_inputs[:num_rows, :size])
            if level > 0:
                previous, forget = self.plan.previous[rows], self.gates[rows, size : 2 * size]
                self.d_hidden.index_copy_(0, previous, self.d_inputs[:num_rows, size:])
                self.d_cell.index_copy_(0, previous, self.d_cell[rows] * forget)

    def weight_gradient(self) -> tuple[Tensor, Tensor]:
        """Gradients of the weight and the bias, from all steps at once."""
        num_steps = len(self.hidden)
        d_weight = self.new(4 * self.size, 2 * self.size).zero_()
        add_outer(d_weight, self.d_gates[:num_steps], self.inputs[:num_steps], dtype=self.weight.dtype)
        return d_weight, self.d_gates[:num_steps].sum(0)


class _ComposeSweep(torch.autograd.Function):
    """Keeps one row of memory a step; every weight's gradient is formed after the sweep."""

    @staticmethod
    def forward(
        ctx: Any,
        given: Tensor,  # (L, E)
        forward_weight: Tensor,  # (4E, 2E)
        forward_bias: Tensor,
        backward_weight: Tensor,
        backward_bias: Tensor,
        output_weight: Tensor,  # (E, 2E)
        output_bias: Tensor,
        kept: Tensor | None,  # (F, 2E) dropout mask, scaled
        plan: Plan,
    ) -> Tensor:
        (num_given, size), num_families = given.shape, len(plan.forward.last)
        vectors = given.new_empty(num_given + num_families, size)
        vectors[:num_given] = given
        readings = (
            _Reading(plan.forward, operand(forward_weight), forward_bias, given.new_empty),
            _Reading(plan.backward, operand(backward_weight), backward_bias, given.new_empty),
        )
        weight = operand(output_weight)
        ends = given.new_zeros(num_families + SLACK_ROWS, 2 * size)  # drop([f; b])
        outputs = given.new_empty(BLOCK_ROWS, size)
        for level, families in enumerate(plan.families):
            for reading in readings:
                reading.compute(level, vectors)
            for start, end in families:
                rows = slice(start, end)
                for half, reading in zip(torch.split(ends[rows], size, 1), readings, strict=True):
                    torch.index_select(reading.hidden, 0, reading.plan.last[rows], out=half)
                if kept is not None:
                    ends[rows] *= kept[rows]
                num = padded(end - start)
                multiply_into(outputs[:num], ends[start : start + num], weight.T, bias=output_bias)
                torch.clamp_min(outputs[: end - start], 0, out=vectors[num_given + start : num_given + end])
        ctx.save_for_backward(vectors, weight, kept)
        ctx.readings, ctx.ends, ctx.plan = readings, ends, plan
        return vectors

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        vectors, weight, kept = ctx.saved_tensors
        num_families, size = len(ctx.plan.forward.last), vectors.shape[1]
        num_given = len(vectors) - num_families
        d_vectors = gradients[0].clone()
        d_outputs = vectors.new_zeros(num_families + SLACK_ROWS, size)
        d_ends = vectors.new_empty(BLOCK_ROWS, 2 * size)
        for reading in ctx.readings:
            reading.begin_gradient()
        for level in reversed(range(len(ctx.plan.families))):
            for start, end in ctx.plan.families[level]:
                rows, given = slice(start, end), slice(num_given + start, num_given + end)
                torch.mul(d_vectors[given], vectors[given] > 0, out=d_outputs[rows])
                num = padded(end - start)
                multiply_into(d_ends[:num], d_outputs[start : start + num], weight)
                if kept is not None:
                    d_ends[: end - start] *= kept[rows]
                for half, reading in zip(torch.split(d_ends[: end - start], size, 1), ctx.readings, strict=True):
                    reading.d_hidden.index_copy_(0, reading.plan.last[rows], half)
            for reading in ctx.readings:
                reading.propagate(level, d_vectors)
        d_weight = vectors.new_zeros(size, 2 * size)
        add_outer(d_weight, d_outputs[:num_families], ctx.ends[:num_families], dtype=weight.dtype)
        d_lstms = [gradient for reading in ctx.readings for gradient in reading.weight_gradient()]
        return d_vectors[:num_given], *d_lstms, d_weight, d_outputs.sum(0), None, None


def compose(given: Tensor, composition: LSTMComposition, kept: Tensor | None, plan: Plan) -> Tensor:
    """All vectors (L + F, E): the given ones (L, E), then the constituents in schedule order.

    ``kept`` is the dropout mask on [f; b], scaled, (F, 2E), or None.
    """
    if not plan.families:
        return given

    def gates(lstm: LSTMWeights) -> tuple[Tensor, Tensor]:
        return torch.cat([lstm.weight_input, lstm.weight_hidden], 1), lstm.bias

    weights = *gates(composition.forward_lstm), *gates(composition.backward_lstm)
    output = composition.output
    vectors: Tensor = _ComposeSweep.apply(given, *weights, output.weight, output.bias, kept, plan)  # type: ignore[no-untyped-call]
    return vectors
