"""Hand-written sweeps of an RNNG, and the same in few large calls for a GPU.

The plain form is ``tests/models/rnng/plain.py``.

``compose`` is LSTM composition level by level, for a CPU. What steps share is computed once: the product of a vector
with the input weights, which several steps may read; the step on a nonterminal, and the product of its state with the
hidden weights, with which several local trees may begin.

An example: (S the dog) has the actions NT(S) SHIFT SHIFT REDUCE and one local tree. Its vectors are 0 (initial), 1
(the), 2 (dog), 3 (S) and, composed, 4 ([S]). S is the only first input: the step of each direction that reads it waits
for nothing and is computed first. Then::

    level   forward step            backward step           composed
    0       the, after S            dog, after S
    1       dog, after the: f       the, after dog: g       [S] = ReLU(W drop([f; g]) + b)

Steps that read [S], in a constituent above it, are in level 2 or later. The gradient takes the levels in reverse.

``compose_by_height`` is for a GPU, where starting a kernel takes longer than what most kernels compute. The children of
all local trees of one height are packed sequences c_1 ... c_n, the longest first, for one call of a bidirectional LSTM.
It starts from the states after NT, and its last states are f and g of ``LSTMComposition``. The stack LSTM is computed
by height too (``layers.few_calls.run_stack``).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from treelm.models.layers.few_calls import library_gates, library_lstm, library_weights, lstm_cell
from treelm.models.layers.lstm import lstm_cell_gradient_into, lstm_cell_into
from treelm.models.layers.packed_weights import LevelProduct
from treelm.models.layers.precision import (
    SLACK_ROWS,
    add_outer,
    add_product,
    gather_into,
    like_operand,
    linear,
    multiply_into,
    operand,
    padded,
    sum_of_rows,
)
from treelm.models.rnng.composition import LSTMComposition
from treelm.models.rnng.plan import ChainPlan, DirectionPlan, TreeChains, TreesByHeight


def _longest(local_trees: list[list[tuple[int, int]]]) -> int:
    """The most local trees of a block, padded."""
    return padded(max((end - start for level in local_trees for start, end in level), default=0))


class _DirectionLSTM:
    """The LSTM of one direction: its steps, level by level, and their gradient.

    Rows of states are first inputs, then all other steps in the order of the plan. E is the size of a vector.
    """

    def __init__(self, plan: DirectionPlan, first_inputs: Tensor, projected: Tensor, weight: Tensor) -> None:
        """Compute the step on every first input, and allocate memory for the states of all others."""
        self.plan, self.first_inputs = plan, first_inputs
        self.projected = projected  # (L + F, 4E) inputs times their weights
        self.weight = weight  # (4E, E) of the state
        num_first, new = len(first_inputs), projected.new_empty
        size, num_rows = weight.shape[1], num_first + len(plan.inputs)
        self.size = size
        num_later = sum(block.end - block.middle for level in plan.blocks for block in level)
        self.gates = new(num_rows + SLACK_ROWS, 4 * size)
        self.hidden_before = weight.new_zeros(num_later + SLACK_ROWS, size)
        self.multiply = LevelProduct(weight)
        self.cell_before, self.cell, self.tanh_cell, self.hidden = (new(num_rows, size) for _ in range(4))
        rows = slice(num_first)
        torch.index_select(projected, 0, first_inputs, out=self.gates[rows])
        self.cell_before[rows] = 0
        lstm_cell_into(self.gates[rows], *self._states(rows))
        self.from_first = new(num_first, 4 * size)  # hidden weights times the state after each first input
        multiply_into(self.from_first, self.hidden[rows], weight.T)

    def _states(self, rows: slice) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        return self.cell_before[rows], self.cell[rows], self.tanh_cell[rows], self.hidden[rows]

    def compute(self, level: int) -> None:
        """Compute the steps of a level. Products are padded; what they write beyond a block is overwritten later."""
        for start, middle, end, later in self.plan.blocks[level]:
            rows, first = slice(len(self.first_inputs) + start, len(self.first_inputs) + end), middle - start
            previous, gates = self.plan.previous[start:end], self.gates[rows]
            torch.index_select(self.projected, 0, self.plan.inputs[start:end], out=gates)
            if first:
                gates[:first] += self.from_first.index_select(0, previous[:first])
            if middle < end:
                num = padded(end - middle)
                before = self.hidden_before[later : later + num]
                gather_into(before[: end - middle], self.hidden, previous[first:])
                self.multiply.add_to(self.gates[rows.start + first : rows.start + first + num], before)
            torch.index_select(self.cell, 0, previous, out=self.cell_before[rows])
            lstm_cell_into(gates, *self._states(rows))

    def begin_gradient(self, d_projected: Tensor) -> None:
        """Start the backward pass. ``d_projected`` (L + F, 4E) is zero, and will be the gradient of ``projected``."""
        self.d_projected = d_projected
        self.d_hidden, self.d_cell = torch.empty_like(self.hidden), torch.zeros_like(self.cell)
        self.d_from_first = torch.zeros_like(self.from_first)
        self.d_later = self.weight.new_empty(len(self.hidden_before), 4 * self.size)  # of the gates of later steps
        self.d_later[-SLACK_ROWS:] = 0
        self.multiply_back = LevelProduct(self.weight.T)
        longest = max((block.end - block.middle for level in self.plan.blocks for block in level), default=0)
        self.d_before = self.gates.new_empty(padded(longest), self.size)

    def _gates_gradient(self, rows: slice, d_gates: Tensor) -> Tensor:
        states = self.gates[rows], self.cell_before[rows], self.tanh_cell[rows]
        lstm_cell_gradient_into(d_gates, self.d_cell[rows], self.d_hidden[rows], *states)
        return d_gates

    def propagate(self, level: int) -> None:
        """The gradient of ``compute``. Only one step reads the state after a child: its gradient is set, not added."""
        for start, middle, end, later in reversed(self.plan.blocks[level]):
            rows, first = slice(len(self.first_inputs) + start, len(self.first_inputs) + end), middle - start
            previous = self.plan.previous[start:end]
            d_gates = self._gates_gradient(rows, self.gates.new_empty(end - start, 4 * self.size))
            self.d_projected.index_add_(0, self.plan.inputs[start:end], d_gates)
            self.d_cell.index_add_(0, previous, self.d_cell[rows] * self.gates[rows, self.size : 2 * self.size])
            if first:
                self.d_from_first.index_add_(0, previous[:first], d_gates[:first])
            if middle < end:
                num = padded(end - middle)
                self.d_later[later : later + end - middle] = d_gates[first:]
                self.multiply_back.into(self.d_before[:num], self.d_later[later : later + num])
                self.d_hidden.index_copy_(0, previous[first:], self.d_before[: end - middle])

    def finish_gradient(self) -> Tensor:
        """The gradient of the step on the first inputs; returns the gradient of the hidden weights (4E, E)."""
        rows = slice(len(self.first_inputs))
        multiply_into(self.d_hidden[rows], self.d_from_first, self.weight)
        d_gates = self._gates_gradient(rows, self.gates.new_empty(len(self.first_inputs), 4 * self.size))
        self.d_projected.index_add_(0, self.first_inputs, d_gates)
        d_weight, dtype = self.gates.new_zeros(4 * self.size, self.size), self.weight.dtype
        add_outer(d_weight, self.d_from_first, self.hidden[rows], dtype=dtype)
        add_outer(d_weight, self.d_later[:-SLACK_ROWS], self.hidden_before[:-SLACK_ROWS], dtype=dtype)
        return d_weight


class _ComposeSweep(torch.autograd.Function):
    """All levels. One row is stored for each step; the gradient of every weight is formed after the levels."""

    @staticmethod
    def forward(
        ctx: Any,
        given: Tensor,  # (L, E)
        weight_input: Tensor,  # (8E, E) forward, backward
        bias: Tensor,  # (8E)
        forward_weight: Tensor,  # (4E, E) of the state
        backward_weight: Tensor,
        output_weight: Tensor,  # (E, 2E)
        output_bias: Tensor,
        kept: Tensor | None,  # (F, 2E) dropout mask, scaled
        plan: ChainPlan,
    ) -> Tensor:
        (num_given, size), num_local_trees = given.shape, len(plan.forward.last)
        weights = operand(weight_input), operand(output_weight)
        vectors = given.new_empty(num_given + num_local_trees + SLACK_ROWS, size)
        multiplied = like_operand(vectors, weights[0])
        for buffer in (vectors, multiplied):
            buffer[:num_given], buffer[-SLACK_ROWS:] = given, 0
        projected = given.new_empty(len(vectors), 8 * size)
        multiply_into(projected[:num_given], multiplied[:num_given], weights[0].T, bias=bias)
        project, transform = LevelProduct(weights[0], bias), LevelProduct(weights[1], output_bias)
        readings = (
            _DirectionLSTM(plan.forward, plan.first_inputs, projected[:, : 4 * size], operand(forward_weight)),
            _DirectionLSTM(plan.backward, plan.first_inputs, projected[:, 4 * size :], operand(backward_weight)),
        )
        ends = weights[1].new_zeros(num_local_trees + SLACK_ROWS, 2 * size)  # drop([f; g])
        longest = _longest(plan.local_trees)
        outputs, summaries = given.new_zeros(longest, size), given.new_empty(longest, 2 * size)
        for level, local_trees in enumerate(plan.local_trees):
            for reading in readings:
                reading.compute(level)
            for start, end in local_trees:
                rows, num, first = slice(start, end), padded(end - start), num_given + start
                both = summaries[: end - start]
                for half, reading in zip(torch.split(both, size, 1), readings, strict=True):
                    torch.index_select(reading.hidden, 0, reading.plan.last[rows], out=half)
                ends[rows] = both if kept is None else both.mul_(kept[rows])
                transform.into(outputs[:num], ends[start : start + num])
                torch.clamp_min(outputs[:num], 0, out=vectors[first : first + num])
                if multiplied is not vectors:
                    multiplied[first : first + num] = vectors[first : first + num]
                project.into(projected[first : first + num], multiplied[first : first + num])
        ctx.save_for_backward(multiplied, *weights, kept)
        ctx.readings, ctx.ends, ctx.plan, ctx.num_given = readings, ends, plan, num_given
        return vectors[: num_given + num_local_trees]

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        vectors, weight_input, weight, kept = ctx.saved_tensors
        num_given, num_local_trees, size = ctx.num_given, len(ctx.plan.forward.last), vectors.shape[1]
        d_vectors = gradients[0].clone()
        d_projected = d_vectors.new_zeros(len(vectors), 8 * size)
        d_multiplied = like_operand(d_projected, vectors)
        d_multiplied[-SLACK_ROWS:] = 0
        d_outputs = vectors.new_zeros(num_local_trees + SLACK_ROWS, size)
        longest = _longest(ctx.plan.local_trees)
        d_ends, d_read = d_vectors.new_empty(longest, 2 * size), d_vectors.new_empty(longest, size)
        project_back, transform_back = LevelProduct(weight_input.T), LevelProduct(weight.T)
        for reading, half in zip(ctx.readings, torch.split(d_projected, 4 * size, 1), strict=True):
            reading.begin_gradient(half)
        for level in reversed(range(len(ctx.plan.local_trees))):
            for start, end in ctx.plan.local_trees[level]:
                rows, num, first = slice(start, end), padded(end - start), num_given + start
                composed = slice(first, num_given + end)
                if d_multiplied is not d_projected:
                    d_multiplied[composed] = d_projected[composed]
                project_back.into(d_read[:num], d_multiplied[first : first + num])
                d_vectors[composed] += d_read[: end - start]
                torch.mul(d_vectors[composed], vectors[composed] > 0, out=d_outputs[rows])
                transform_back.into(d_ends[:num], d_outputs[start : start + num])
                if kept is not None:
                    d_ends[: end - start] *= kept[rows]
                for half, reading in zip(torch.split(d_ends[: end - start], size, 1), ctx.readings, strict=True):
                    reading.d_hidden.index_copy_(0, reading.plan.last[rows], half)
            for reading in ctx.readings:
                reading.propagate(level)
        d_hidden_weights = [reading.finish_gradient() for reading in ctx.readings]
        if d_multiplied is not d_projected:
            d_multiplied[:num_given] = d_projected[:num_given]
        add_product(d_vectors[:num_given], d_multiplied[:num_given], weight_input)
        d_weight_input, d_weight = d_vectors.new_zeros(8 * size, size), d_vectors.new_zeros(size, 2 * size)
        add_outer(d_weight_input, d_multiplied[:-SLACK_ROWS], vectors[:-SLACK_ROWS], dtype=weight.dtype)
        add_outer(d_weight, d_outputs[:num_local_trees], ctx.ends[:num_local_trees], dtype=weight.dtype)
        d_bias, d_output_bias = (sum_of_rows(rows, like=d_vectors) for rows in (d_multiplied[:-SLACK_ROWS], d_outputs))
        d_inputs = d_vectors[:num_given], d_weight_input, d_bias
        return *d_inputs, *d_hidden_weights, d_weight, d_output_bias, None, None


def compose(given: Tensor, composition: LSTMComposition, kept: Tensor | None, plan: ChainPlan) -> Tensor:
    """All vectors (L + F, E): the given ones (L, E), then the constituents in the order of the plan.

    ``kept`` (F, 2E) is the scaled dropout mask of [f; g], or None.
    """
    if not plan.local_trees:
        return given

    lstms = composition.forward_lstm, composition.backward_lstm
    weight_input = torch.cat([lstm.weight_input for lstm in lstms])
    bias = torch.cat([lstm.bias for lstm in lstms])
    weights = (*(lstm.weight_hidden for lstm in lstms), composition.output.weight, composition.output.bias)
    vectors: Tensor = _ComposeSweep.apply(given, weight_input, bias, *weights, kept, plan)  # type: ignore[no-untyped-call]
    return vectors


def compose_by_height(given: Tensor, composition: LSTMComposition, kept: Tensor | None, trees: TreesByHeight) -> Tensor:
    """All vectors (L + F, E): the given ones (L, E), then the constituents by height.

    ``kept`` (F, 2E) is the scaled dropout mask of [f; g], or None.
    """
    if not trees.levels:
        return given
    steps = (
        _fused_steps(composition, trees)
        if isinstance(trees.levels[0], TreeChains)
        else _library_steps(given, composition, trees)
    )
    output, bias = operand(composition.output.weight), operand(composition.output.bias)
    masks = [None] * len(steps) if kept is None else torch.split(kept, trees.sizes)
    vectors = given
    for step, mask in zip(steps, masks, strict=True):
        both = step(vectors)
        if mask is not None:
            both = both * mask.to(both.dtype)
        vectors = torch.cat([vectors, functional.linear(both, output, bias).relu().to(given.dtype)])
    return vectors


def _library_steps(
    given: Tensor, composition: LSTMComposition, trees: TreesByHeight
) -> list[Callable[[Tensor], Tensor]]:
    """For each height, a function from all vectors so far to [f; g] of its trees, by the library's LSTM."""
    labels, after_label = given.index_select(0, trees.labels), list[tuple[Tensor, Tensor]]()
    directions = [
        (lstm.weight_input, lstm.weight_hidden, lstm.bias)
        for lstm in (composition.forward_lstm, composition.backward_lstm)
    ]
    for weight_input, _, own_bias in directions:
        gates = linear(labels, library_gates(weight_input), library_gates(own_bias))
        after_label.append(lstm_cell(gates, torch.zeros_like(gates), torch.zeros_like(labels)))
    hidden, cell = (torch.split(operand(torch.stack(one)), trees.sizes, 1) for one in zip(*after_label, strict=True))
    weights = library_weights(*directions)

    def step(level: Any, hidden: Tensor, cell: Tensor, vectors: Tensor) -> Tensor:
        batch_sizes = torch.tensor(level.batch_sizes)  # stays on the CPU, where the library looks at it
        read = operand(vectors.index_select(0, level.children))
        return torch.cat(library_lstm(read, (hidden, cell), weights, batch_sizes)[1].unbind(), 1)

    return [partial(step, *one) for one in zip(trees.levels, hidden, cell, strict=True)]


def _fused_steps(composition: LSTMComposition, trees: TreesByHeight) -> list[Callable[[Tensor], Tensor]]:
    """The same functions as ``_library_steps``, by the kernels of ``layers.fused``."""
    from treelm.models.layers.fused import run_forest  # which imports Triton

    lstms = composition.forward_lstm, composition.backward_lstm
    weight_input, weight_hidden = (
        torch.stack([getattr(lstm, name) for lstm in lstms]) for name in ("weight_input", "weight_hidden")
    )
    bias, weights = operand(torch.stack([lstm.bias for lstm in lstms])[:, None]), operand(weight_input).mT

    def step(level: Any, vectors: Tensor) -> Tensor:
        read = operand(vectors.index_select(0, level.read)).view(2, -1, weights.shape[1])
        hidden = run_forest(torch.baddbmm(bias, read, weights), weight_hidden, level.chains)
        return operand(hidden.flatten(0, 1).index_select(0, level.last).view(-1, 2 * hidden.shape[2]))

    return [partial(step, one) for one in trees.levels]
