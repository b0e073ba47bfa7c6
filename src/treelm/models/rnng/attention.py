"""Attention composition (Kuncoro et al. 2017, Sec. 4), level by level with the stack.

With attention a constituent's vector depends on the stack before its REDUCE, so stack and constituents share one
schedule. A level holds contexts, that is pushes of an item onto the stack, through all layers. A context waits for the
one right below it and, if its item is a composed constituent, for the context before the REDUCE. That constituent is
composed in the same level, before it is pushed, from children that lower levels have pushed. So a level takes two large
steps: ``compose`` for all its local trees, whose children one call of a bidirectional LSTM reads, and ``push`` for all
its contexts.

For example, (S (NP the dog) barks) has these contexts, each with its item and level. NP waits for the context of "dog",
as REDUCE looks at the stack that "dog" is on the top of; it is composed and pushed on S in level 5::

    context  0        1  2   3    4    5        6
    item     initial  S  NP  the  dog  [NP the dog]  barks
    level    0        1  2   3    4    5        6

The plain form is ``tests/models/rnng/plain.py``. Shapes: T contexts, F local trees, M children, L given vectors, E size
of a vector, H of a state. Contexts are numbered like actions, as in ``plan.py``; here they stand in the order of the
schedule, and local trees in the order of levels, the longest first within a level.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from treelm.models.layers.few_calls import library_buffer, library_gates, library_lstm, lstm_cell, weights_in
from treelm.models.layers.levels import Schedule, schedule, starts
from treelm.models.layers.lstm import LSTMWeights
from treelm.models.layers.precision import operand
from treelm.models.layers.sweep import Constant, Kind, Matrix, Rows, sweep
from treelm.models.rnng.composition import AttentionComposition
from treelm.models.search.derivations import Derivations, LocalTrees
from treelm.trees.transitions import FIRST_NT

IntArray = NDArray[np.int64]
Matrices = Mapping[str, Matrix]


class AttentionPlan(NamedTuple):
    """The rows of buffers that every level reads and writes; (levels + 1,) lists say where levels begin."""

    contexts: Tensor  # (T,) the number of each context
    vectors: Tensor  # (T,) the vector that each pushes
    below: Tensor  # (T,) the place of the context right below each; T for none
    pushes: list[int]  # (levels + 1,) of contexts, vectors and below
    local_trees: Tensor  # (F,) the number of each local tree
    labels: Tensor  # (F,) labels of local trees, by their number
    before: Tensor  # (F,) the place of the context before each REDUCE
    trees: list[int]  # (levels + 1,) of local_trees and before
    children: Tensor  # (M,) the vectors that the LSTM reads, packed sequences for each level
    child_levels: list[int]  # (levels + 1,) of children
    alive: list[int]  # for each level, how many local trees have a first child, a second child, ...
    alive_levels: list[int]  # (levels + 1,) of alive
    places: Tensor  # for each local tree, the places of its children within the level, padded to the most
    is_child: Tensor  # likewise, whether there is such a child
    place_levels: list[int]  # (levels + 1,) of places and is_child


class Dropped(NamedTuple):
    """Scaled dropout masks, in the order of the numbers of contexts and of local trees."""

    states: Sequence[Tensor]  # (T, H) each: between layers and, the last one, before the output
    attended: Tensor  # (F, E) of the attended children m


def schedule_attention(below: IntArray, local_trees: LocalTrees) -> tuple[Schedule, IntArray]:
    """The schedule of contexts, from the context right below each (T,), -1: none; and the order of local trees (F,)."""
    waits_for = np.stack([below, np.full_like(below, -1)], 1)
    waits_for[local_trees.reduce + 1, 1] = local_trees.reduce
    contexts = schedule(waits_for)
    level = np.searchsorted(contexts.offsets, contexts.position[local_trees.reduce + 1], "right")
    return contexts, np.lexsort((-local_trees.num_children, level))


def plan_attention(
    derivations: Derivations,
    local_trees: LocalTrees,
    contexts: Schedule,
    trees: IntArray,
    below: IntArray,
    vector_of_context: IntArray,
    vector_of_action: IntArray,
) -> AttentionPlan:
    """The plan of a schedule of contexts and an order of local trees that ``schedule_attention`` has returned."""
    position, first = np.append(contexts.position, len(contexts.order)), local_trees.offsets[:-1] + 1
    pushed = contexts.position[local_trees.reduce[trees] + 1]
    tree_levels = np.searchsorted(pushed, contexts.offsets)
    children, alive, places, is_child = [np.zeros(0, np.int64)], list[list[int]](), list[IntArray](), list[Any]()
    for start, end in pairwise(tree_levels.tolist()):
        own = trees[start:end]
        sizes = local_trees.num_children[own]
        step = np.arange(sizes.max(initial=0))[:, None]
        is_read = step < sizes  # (steps, trees), in each row a prefix
        counts = is_read.sum(1)
        children.append(vector_of_action[local_trees.entries[(first[own] + step)[is_read]]])
        alive.append(counts.tolist())
        places.append(np.where(is_read, starts(counts)[:-1, None] + np.arange(len(own)), 0).T.ravel())
        is_child.append(is_read.T.ravel())

    def levels(parts: Sequence[Any]) -> list[int]:
        found: list[int] = starts(np.array([len(part) for part in parts])).tolist()
        return found

    nonterminals = local_trees.entries[local_trees.offsets[:-1]]
    return AttentionPlan(
        contexts=torch.from_numpy(contexts.order),
        vectors=torch.from_numpy(vector_of_context[contexts.order]),
        below=torch.from_numpy(position[below[contexts.order]]),
        pushes=contexts.offsets.tolist(),
        local_trees=torch.from_numpy(trees),
        labels=torch.from_numpy(derivations.actions[nonterminals] - FIRST_NT),
        before=torch.from_numpy(contexts.position[local_trees.reduce[trees]]),
        trees=tree_levels.tolist(),
        children=torch.from_numpy(np.concatenate(children)),
        child_levels=levels(children[1:]),
        alive=[count for counts in alive for count in counts],
        alive_levels=levels(alive),
        places=torch.from_numpy(np.concatenate(places)),
        is_child=torch.from_numpy(np.concatenate(is_child)),
        place_levels=levels(places),
    )


def attention_outputs(
    given: Tensor,
    composition: AttentionComposition,
    stack: Sequence[LSTMWeights],
    output: nn.Linear,
    dropped: Dropped | None,
    label_vectors: Tensor,
    plan: AttentionPlan,
) -> Tensor:
    """The output o in every context (T, E), in the order of the plan.

    ``given`` (L, E) are the vectors that are not composed; ``label_vectors`` (F, E) is drop(t) of every local tree, in
    the order of their numbers.
    """
    num_contexts, num_trees, size = len(plan.contexts), len(plan.local_trees), given.shape[1]
    directions = composition.forward_lstm, composition.backward_lstm
    lstm, shapes = library_buffer(*((one.weight_input, one.weight_hidden, one.bias) for one in directions))
    width = 2 * len(stack) * stack[0].hidden_size
    buffers = {
        "vectors": torch.cat([given, given.new_zeros(num_trees, size)]),
        # Hidden and cell states of all layers, and o. The last row stays zero: it is the state before any step.
        "states": given.new_zeros(num_contexts + 1, width + size),
        "labels": torch.cat([composition.label_query.index_select(0, plan.labels), label_vectors], 1)[plan.local_trees],
        "lstm": lstm[None],
    }
    pads = Constant(plan.places, plan.place_levels)
    weights: dict[str, tuple[Tensor, Tensor | None]] = {
        "query": (composition.query.weight, None),
        "gate": (composition.gate.weight, composition.gate.bias),
        "compose": (composition.output.weight, composition.output.bias),
        "output": (output.weight, output.bias),
    }
    for layer, one in enumerate(stack):
        weights[f"input_{layer}"] = library_gates(one.weight_input), library_gates(one.bias)
        weights[f"hidden_{layer}"] = library_gates(one.weight_hidden), None

    def compose(
        matrices: Matrices,
        read: Tensor,  # (children, E) packed
        before: Tensor,  # (n, width + E)
        labels: Tensor,  # (n, 2E) query o, and t, dropped
        flat: Tensor,  # (1, weights)
        alive: Tensor,
        places: Tensor,  # (n * most children,)
        is_child: Tensor,
        kept: Tensor | None = None,  # (n, E)
    ) -> tuple[Tensor]:
        own = weights_in(operand(flat[0]), shapes)
        zero = own[0].new_zeros(2, len(labels), size // 2)
        states = library_lstm(operand(read), (zero, zero), own, alive)[0].to(read.dtype)
        children = states.index_select(0, places).view(len(labels), -1, size)
        query, label = labels.chunk(2, 1)
        wanted = matrices["query"](torch.cat([query, before[:, width:]], 1))
        scores = (children @ wanted[:, :, None])[:, :, 0].masked_fill(~is_child.view(len(labels), -1), -torch.inf)
        attended = (scores.softmax(1)[:, None] @ children)[:, 0]
        if kept is not None:
            attended = attended * kept
        gate = matrices["gate"](torch.cat([label, attended], 1)).sigmoid()
        return (matrices["compose"](torch.lerp(attended, label, gate)).relu(),)

    def push(matrices: Matrices, x: Tensor, below: Tensor, *masks: Tensor) -> tuple[Tensor]:
        """States of every layer and o, from the vector read, the states below and masks, if any."""
        states, written = below[:, :width].chunk(2 * len(stack), 1), list[Tensor]()
        for layer in range(len(stack)):
            hidden, cell = states[2 * layer : 2 * layer + 2]
            written += lstm_cell(matrices[f"input_{layer}"](x), matrices[f"hidden_{layer}"](hidden), cell)
            x = written[-2] * masks[layer] if masks else written[-2]
        return (torch.cat([*written, matrices["output"](x).relu()], 1),)

    kept = [] if dropped is None else [Constant(dropped.attended.index_select(0, plan.local_trees), plan.trees)]
    masks = [] if dropped is None else [mask.index_select(0, plan.contexts) for mask in dropped.states]
    kinds = [
        Kind(
            function=compose,
            reads=[
                Rows("vectors", plan.children, plan.child_levels),
                Rows("states", plan.before, plan.trees),
                Rows("labels", None, plan.trees),
                Rows("lstm", plan.labels.new_zeros(len(plan.pushes) - 1), range(len(plan.pushes))),
            ],
            constants=[
                Constant(torch.tensor(plan.alive, dtype=torch.int64), plan.alive_levels),  # the library wants it here
                pads,
                Constant(plan.is_child, plan.place_levels),
                *kept,
            ],
            writes=[Rows("vectors", None, [len(given) + start for start in plan.trees])],
        ),
        Kind(
            function=push,
            reads=[Rows("vectors", plan.vectors, plan.pushes), Rows("states", plan.below, plan.pushes)],
            constants=[Constant(mask, plan.pushes) for mask in masks],
            writes=[Rows("states", None, plan.pushes)],
        ),
    ]
    with torch.autocast(given.device.type, enabled=False):  # what is rounded is what ``operand`` says
        return sweep(kinds, buffers, weights)["states"][:-1, width:]
