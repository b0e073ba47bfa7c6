"""LSTM composition of all constituents of a batch, level by level (schedule: ``chains``)."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from treelm.models.layers.lstm import lstm_cell_gradient_into, lstm_cell_into
from treelm.models.layers.precision import add_outer, multiply_into, operand
from treelm.models.rnng.composition import LSTMComposition

# Legend: 2M steps, F families, L given vectors, E size of a vector. All in schedule order.

OUTER_ROWS = 4096  # rows that are gathered at a time for the gradient of a weight


class Plan(NamedTuple):
    """``Chains``, ready for computing."""

    inputs: Tensor  # (2M,) the vector that each step reads
    previous: Tensor  # (2M,) the step before; unused in level 0
    levels: list[tuple[int, int, int]]  # first forward step, first backward step, end of each level
    families: list[tuple[int, int]]  # first and end of the families composed in each level
    last_forward: Tensor  # (F,)
    last_backward: Tensor  # (F,)
    forward_steps: Tensor  # (M,) all forward steps
    backward_steps: Tensor  # (M,) all backward steps


class _ComposeSweep(torch.autograd.Function):
    """Keeps one row of memory a step; every weight's gradient is formed after the sweep."""

    @staticmethod
    def forward(
        ctx: Any,
        given: Tensor,  # (L, E)
        forward_weight: Tensor,  # (4E, 2E): of the input and of the hidden state
        forward_bias: Tensor,
        backward_weight: Tensor,
        backward_bias: Tensor,
        output_weight: Tensor,  # (E, 2E)
        output_bias: Tensor,
        kept: Tensor | None,  # (F, 2E) dropout mask, scaled
        plan: Plan,
    ) -> Tensor:
        num_steps, num_given, size = len(plan.inputs), *given.shape
        num_families = len(plan.last_forward)
        new = given.new_empty
        vectors = new(num_given + num_families, size)
        vectors[:num_given] = given
        inputs, gates = new(num_steps, 2 * size), new(num_steps, 4 * size)  # inputs: [x; h of the step before]
        cell_before, cell, tanh_cell, hidden = (new(num_steps, size) for _ in range(4))
        ends = new(num_families, 2 * size)  # drop([f; b])
        weights = operand(forward_weight), operand(backward_weight), operand(output_weight)
        for level, (start, middle, end) in enumerate(plan.levels):
            rows = slice(start, end)
            inputs[rows, :size] = vectors.index_select(0, plan.inputs[rows])
            width = size if level == 0 else 2 * size
            if level == 0:
                inputs[rows, size:] = cell_before[rows] = 0
            else:
                inputs[rows, size:] = hidden.index_select(0, plan.previous[rows])
                torch.index_select(cell, 0, plan.previous[rows], out=cell_before[rows])
            for part, weight, bias in (
                (slice(start, middle), weights[0], forward_bias),
                (slice(middle, end), weights[1], backward_bias),
            ):
                if part.stop > part.start:
                    multiply_into(gates[part], inputs[part, :width], weight[:, :width].T, bias=bias)
            lstm_cell_into(gates[rows], cell_before[rows], cell[rows], tanh_cell[rows], hidden[rows])
            first, last = plan.families[level]
            if last > first:
                composed = slice(first, last)
                ends[composed, :size] = hidden.index_select(0, plan.last_forward[composed])
                ends[composed, size:] = hidden.index_select(0, plan.last_backward[composed])
                if kept is not None:
                    ends[composed] *= kept[composed]
                out = vectors[num_given + first : num_given + last]
                multiply_into(out, ends[composed], weights[2].T, bias=output_bias)
                out.relu_()
        ctx.save_for_backward(vectors, inputs, gates, cell_before, tanh_cell, ends, *weights, kept)
        ctx.plan, ctx.num_given = plan, num_given
        return vectors

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        vectors, inputs, gates, cell_before, tanh_cell, ends, *weights, kept = ctx.saved_tensors
        forward_weight, backward_weight, output_weight = weights
        plan, num_given, size = ctx.plan, ctx.num_given, vectors.shape[1]
        d_vectors = gradients[0].clone()
        new = d_vectors.new_empty
        d_hidden, d_cell, d_gates = new(tanh_cell.shape), torch.zeros_like(tanh_cell), torch.empty_like(gates)
        d_inputs = new(max(end - start for start, _, end in plan.levels), 2 * size)
        d_outputs = new(len(ends), size)
        for level in reversed(range(len(plan.levels))):
            start, middle, end = plan.levels[level]
            first, last = plan.families[level]
            if last > first:
                composed = slice(first, last)
                given = slice(num_given + first, num_given + last)
                torch.mul(d_vectors[given], vectors[given] > 0, out=d_outputs[composed])
                d_ends = new(last - first, 2 * size)
                multiply_into(d_ends, d_outputs[composed], output_weight)
                if kept is not None:
                    d_ends *= kept[composed]
                d_hidden.index_copy_(0, plan.last_forward[composed], d_ends[:, :size])
                d_hidden.index_copy_(0, plan.last_backward[composed], d_ends[:, size:])
            rows = slice(start, end)
            lstm_cell_gradient_into(
                d_gates[rows], d_cell[rows], d_hidden[rows], gates[rows], cell_before[rows], tanh_cell[rows]
            )
            width = size if level == 0 else 2 * size
            for part, weight in ((slice(start, middle), forward_weight), (slice(middle, end), backward_weight)):
                if part.stop > part.start:
                    out = d_inputs[part.start - start : part.stop - start, :width]
                    multiply_into(out, d_gates[part], weight[:, :width])
            d_vectors.index_add_(0, plan.inputs[rows], d_inputs[: end - start, :size])
            if level > 0:
                # Every step but a last one is the previous of just one step, so copying suffices.
                d_hidden.index_copy_(0, plan.previous[rows], d_inputs[: end - start, size:])
                d_cell.index_copy_(0, plan.previous[rows], d_cell[rows] * gates[rows, size : 2 * size])
        d_forward = _weight_gradient(d_gates, inputs, plan.forward_steps, forward_weight.dtype)
        d_backward = _weight_gradient(d_gates, inputs, plan.backward_steps, backward_weight.dtype)
        d_output_weight = new(size, 2 * size).zero_()
        add_outer(d_output_weight, d_outputs, ends, dtype=output_weight.dtype)
        return d_vectors[:num_given], *d_forward, *d_backward, d_output_weight, d_outputs.sum(0), None, None


def _weight_gradient(d_gates: Tensor, inputs: Tensor, steps: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Gradients of a weight (4E, 2E) and bias (4E) from the steps that used them."""
    d_weight = d_gates.new_zeros(d_gates.shape[1], inputs.shape[1])
    d_bias = d_gates.new_zeros(d_gates.shape[1])
    for some in torch.split(steps, OUTER_ROWS):
        d_some = d_gates.index_select(0, some)
        add_outer(d_weight, d_some, inputs.index_select(0, some), dtype=dtype)
        d_bias += d_some.sum(0)
    return d_weight, d_bias


def compose(given: Tensor, composition: LSTMComposition, kept: Tensor | None, plan: Plan) -> Tensor:
    """All vectors (L + F, E): the given ones (L, E), then the constituents in schedule order.

    ``kept`` is the dropout mask on [f; b], scaled, (F, 2E), or None.
    """
    if not len(plan.last_forward):
        return given
    weights = []
    for lstm in (composition.forward_lstm, composition.backward_lstm):
        weights += [torch.cat([lstm.weight_input, lstm.weight_hidden], 1), lstm.bias]
    output = composition.output
    vectors: Tensor = _ComposeSweep.apply(given, *weights, output.weight, output.bias, kept, plan)  # type: ignore[no-untyped-call]
    return vectors
