"""All levels of an RNNG as a function of tensors alone, which ``layers/graphs.py`` captures as one CUDA graph a form.

A captured graph has fixed shapes, and no two batches of trees have levels of the same sizes. So levels are padded to
those of a ``Form``, numbers of rows that many batches share. Rows of padding read row 0 of what they read; nothing
reads them, so their gradient is zero. Which rows the others read stands in tables, which differ from batch to batch.

Steps of composition are computed in the earliest level that they can be (``plan.py``), the stack by height, as in
``layers.few_calls``. The plain form is ``tests/models/rnng/plain.py``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import accumulate
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from treelm.models.layers.few_calls import StackLevels, library_gates, lstm_cell, run_levels
from treelm.models.layers.graphs import MOST_FORMS
from treelm.models.layers.levels import ranges, starts
from treelm.models.layers.precision import linear
from treelm.models.layers.sweep import Constant, Kind, Matrix, Rows, sweep

IntArray = NDArray[np.int64]

MOST_WASTE, FEW_ROWS = 2, 1000  # a form has at most so many times the rows of a plan that uses it, and so many more
MULTIPLE = 8  # of rows, and the rows of a level beyond the last one


class Form(NamedTuple):
    """The number of rows of every level, of a plan or after padding. The last three are for LSTM composition.

    ``given`` and ``first`` are one level in a plan; after padding they have a second one of a few rows, as room.
    """

    given: tuple[int, ...]  # vectors that are not composed
    stack: tuple[int, ...]  # contexts, by the height of the stack
    first: tuple[int, ...]  # vectors of nonterminals, with which chains of steps begin
    steps: tuple[int, ...]  # of every level, in each of the two directions
    composed: tuple[int, ...]  # constituents of every level

    @property
    def num_rows(self) -> int:
        """Rows in all."""
        return sum(map(sum, self))

    def holds(self, plan: Form) -> bool:
        """Whether a plan with these numbers of rows can be padded to this form."""
        pairs = list(zip(self, plan, strict=True))
        return all(len(own) >= len(other) for own, other in pairs) and all(
            room >= rows for own, other in pairs for room, rows in zip(own, other, strict=False)
        )


class Forms:
    """The forms of a network, which are added as batches need them."""

    def __init__(self) -> None:
        """Start without forms."""
        self._forms: list[Form] = []

    def find(self, plan: Form) -> Form:
        """The smallest form that holds a plan and is not much larger, or a new one with some room to spare.

        Once there are ``MOST_FORMS``, a form may be of any size.
        """
        is_full = len(self._forms) == MOST_FORMS
        most = math.inf if is_full else MOST_WASTE * plan.num_rows + FEW_ROWS
        fitting = [one for one in self._forms if one.num_rows <= most and one.holds(plan)]
        if fitting:
            return min(fitting, key=lambda one: one.num_rows)
        form = Form(*map(_with_room, plan))
        if not is_full:
            self._forms.append(form)
        return form


def _with_room(sizes: tuple[int, ...]) -> tuple[int, ...]:
    """Room for what differs from batch to batch: rows about as draws of them do, and an eighth more levels."""
    if not sizes:
        return ()
    rows = np.array(sizes)
    rounded = np.ceil((rows + 3 * np.sqrt(rows) + MULTIPLE / 2) / MULTIPLE).astype(int) * MULTIPLE
    return (*rounded.tolist(), *[MULTIPLE] * (len(sizes) // 8 + 1))


class PaddedPlan(NamedTuple):
    """All levels of a batch, padded to a form.

    The tables, which ``plan.py`` makes and ``captured_outputs`` takes apart, are the vector of each context; for those
    of height 1 and more, the context right below, counted within its level; the vectors with which chains of steps
    begin; and for each direction the vector that each step reads, the state before each step, and the last state of
    each constituent.
    """

    form: Form
    tables: Tensor  # (n,) numbers of rows, one table after the other
    contexts: Tensor  # (T,) the rows of the contexts of the batch
    composed: Tensor  # (F,) the rows of its constituents


def places(sizes: list[int], room: tuple[int, ...]) -> IntArray:
    """The rows of a plan, with levels of these sizes, among those of its form."""
    return ranges(starts(np.array(room, np.int64))[: len(sizes)], np.array(sizes, np.int64))


def filled(rows: IntArray, values: IntArray, num_rows: int) -> IntArray:
    """A table (num_rows,) that has these values at these rows, and else 0."""
    table = np.zeros(num_rows, np.int64)
    table[rows] = values
    return table


def captured_outputs(
    form: Form, num_layers: int, num_masks: int, tables: Tensor, given: Tensor, *tensors: Tensor
) -> tuple[Tensor]:
    """o = ReLU(W drop(h_top) + b) in every context of a padded plan, from the vectors that are not composed.

    ``tensors`` are dropout masks, if any, of [f; g] and of the states of each layer; then the weights of the layers and
    of both directions of composition, three each, of the output, and of the output of composition.
    """
    masks, weights = iter(tensors[:num_masks]), iter(tensors[num_masks:])
    num_contexts, num_steps, num_composed = sum(form.stack), sum(form.steps), sum(form.composed)
    of_direction = [num_steps, num_steps, num_composed]
    sizes = [num_contexts, num_contexts - form.stack[0], sum(form.first), *of_direction, *of_direction]
    vector, below, first, *directions = torch.split(tables, sizes)
    layers = [_take(weights, 3) for _ in range(num_layers)]
    lstms, output = _take(weights, 6 if form.first else 0), _take(weights, 2)
    with torch.autocast(given.device.type, enabled=False):  # what is rounded is what ``operand`` says
        vectors = given
        if form.first:
            vectors = _compose(form, first, directions, given, lstms, _take(weights, 2), next(masks, None))
        hidden = vectors.index_select(0, vector)
        levels = StackLevels(list(form.stack), torch.split(below, list(form.stack[1:])))
        for layer in layers:
            hidden = run_levels(hidden, layer, levels)
            mask = next(masks, None)
            hidden = hidden if mask is None else hidden * mask
        return (linear(hidden, *output).relu(),)


def _take(weights: Iterator[Tensor], number: int) -> list[Tensor]:
    return [next(weights) for _ in range(number)]


def _compose(
    form: Form,
    first: Tensor,
    tables: Sequence[Tensor],
    given: Tensor,
    weights: Sequence[Tensor],
    output: Sequence[Tensor],
    kept: Tensor | None,
) -> Tensor:
    """The given vectors, and behind them the composed ones: in each level, steps of both directions, then trees."""
    steps, trees = ([0, *accumulate(sizes)] for sizes in (form.steps, form.composed))
    size = given.shape[1]
    buffers = {"vectors": torch.cat([given, given.new_zeros(trees[-1], size)])}
    matrices: dict[str, tuple[Tensor, Tensor | None]] = {"compose": (output[0], output[1])}
    kinds, ends = list[Kind](), list[Rows]()
    for number, name in enumerate(("forward", "backward")):
        inputs, previous, last = tables[3 * number : 3 * number + 3]
        weight_input, weight_hidden, bias = map(library_gates, weights[3 * number : 3 * number + 3])
        gates = linear(given.index_select(0, first), weight_input, bias)
        after_label = torch.cat(lstm_cell(gates, torch.zeros_like(gates), gates.new_zeros(len(first), size)), 1)
        buffers[name] = torch.cat([after_label, after_label.new_zeros(steps[-1], 2 * size)])
        matrices |= {f"{name} input": (weight_input, bias), f"{name} hidden": (weight_hidden, None)}
        kinds.append(
            Kind(
                function=partial(_step, name),
                reads=[Rows("vectors", inputs, steps), Rows(name, previous, steps)],
                writes=[Rows(name, None, [len(first) + start for start in steps])],
            )
        )
        ends.append(Rows(name, last, trees))
    constants = [] if kept is None else [Constant(kept, trees)]
    written = [Rows("vectors", None, [len(given) + start for start in trees])]
    kinds.append(Kind(function=_join, reads=ends, constants=constants, writes=written))
    return sweep(kinds, buffers, matrices)["vectors"]


def _step(name: str, matrices: dict[str, Matrix], inputs: Tensor, before: Tensor) -> tuple[Tensor]:
    """The states [hidden, cell] (n, 2E) after steps of one direction that read these inputs (n, E)."""
    hidden, cell = before.chunk(2, 1)
    return (torch.cat(lstm_cell(matrices[f"{name} input"](inputs), matrices[f"{name} hidden"](hidden), cell), 1),)


def _join(matrices: dict[str, Matrix], forward: Tensor, backward: Tensor, kept: Tensor | None = None) -> tuple[Tensor]:
    """e = ReLU(W drop([f; g]) + b) of local trees, from the last states of both directions."""
    size = forward.shape[1] // 2
    both = torch.cat([forward[:, :size], backward[:, :size]], 1)
    return (matrices["compose"](both if kept is None else both * kept).relu(),)
