"""Attention composition (Kuncoro et al. 2017, Sec. 4), level by level with the stack.

With attention a constituent's vector needs the stack before its REDUCE, so stack and constituents share one schedule of
four kinds of node: a step forward and a step backward over the children of a local tree, a local tree (attention, gate
and output), and a context (the push onto the stack through all layers). The plain form is
``tests/models/rnng/plain.py``.

Legend: T contexts, F local trees, M children, L given vectors, E size of a vector, H of a state. Contexts are numbered
like actions, as in ``plan.py``; children as they stand in the local trees.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from treelm.models.layers.levels import ranges, schedule, starts
from treelm.models.layers.lstm import LSTMWeights, lstm_cell
from treelm.models.layers.sweep import Constant, Kind, Matrix, Rows, sweep
from treelm.models.rnng.composition import AttentionComposition
from treelm.models.search.derivations import Derivations, LocalTrees
from treelm.trees.transitions import FIRST_NT

IntArray = NDArray[np.int64]
Matrices = Mapping[str, Matrix]


class AttentionPlan(NamedTuple):
    """Rows of buffers, by level."""

    forward: tuple[Rows, Rows, Rows]  # vector read, step before, step written
    backward: tuple[Rows, Rows, Rows]
    contexts: tuple[Rows, Rows, Rows]  # vector read, context below, context written
    children: Rows  # steps over the children of the local trees
    segment: Constant  # which of the level's local trees each child belongs to
    outputs: Rows  # the context before each local tree's REDUCE
    local_trees: Rows  # local trees by their number
    composed: Rows  # the vector that each local tree writes
    labels: Tensor  # (F,)


class Dropped(NamedTuple):
    """Scaled dropout masks, by the numbers of contexts and local trees."""

    states: Sequence[Tensor]  # (T, H) between layers and, last, before the output
    attended: Tensor  # (F, E)


def plan_attention(
    derivations: Derivations,
    local_trees: LocalTrees,
    below: IntArray,
    vector_of_context: IntArray,
    vector_of_action: IntArray,
) -> AttentionPlan:
    """Schedule all nodes. ``local_trees`` are those to compose, ``below`` (T,) the context right below, -1 for none."""
    is_child = np.ones(len(local_trees.entries), np.bool_)
    is_child[local_trees.offsets[:-1]] = False
    children, sizes, reduce = local_trees.entries[is_child], local_trees.num_children, local_trees.reduce
    offsets = starts(sizes)
    first, last = offsets[:-1], offsets[1:] - 1
    num_contexts, num_children, num_trees = len(below), len(children), len(reduce)
    tree_of_action = np.full(num_contexts, -1)
    tree_of_action[reduce] = np.arange(num_trees)
    pushed, child = np.where(derivations.is_start, -1, np.roll(tree_of_action, 1)), tree_of_action[children]
    before, after = np.arange(num_children) - 1, np.arange(num_children) + 1
    before[first] = after[last] = -1
    # Numbers of nodes: contexts, forward steps, backward steps, local trees.
    forward, backward, composed = (num_contexts + number * num_children for number in range(3))

    def shifted(nodes: IntArray, by: int) -> IntArray:
        return np.where(nodes >= 0, nodes + by, -1)

    waits_for = np.full((composed + num_trees, 3), -1)
    waits_for[:forward, :2] = np.stack([below, shifted(pushed, composed)], 1)
    waits_for[forward:backward, :2] = np.stack([shifted(before, forward), shifted(child, composed)], 1)
    waits_for[backward:composed, :2] = np.stack([shifted(after, backward), shifted(child, composed)], 1)
    waits_for[composed:] = np.stack([last + forward, first + backward, reduce], 1)
    joint = schedule(waits_for)

    def nodes(start: int, end: int) -> tuple[IntArray, list[int]]:
        """Nodes of one kind in the order of their levels, and where levels begin."""
        positions = joint.position[start:end]
        order = np.argsort(positions)
        return order, np.searchsorted(positions[order], joint.offsets).tolist()

    def rows(index: IntArray, levels: list[int]) -> Rows:
        return Rows("", torch.from_numpy(index), levels)

    def steps(start: int, end: int, read: IntArray, previous: IntArray) -> tuple[Rows, Rows, Rows]:
        order, levels = nodes(start, end)
        before = np.where(previous >= 0, previous, end - start)[order]  # behind all rows stands the state before any
        return rows(read[order], levels), rows(before, levels), rows(order, levels)

    trees, levels = nodes(composed, len(waits_for))
    sizes, level_start = sizes[trees], np.repeat(levels[:-1], np.diff(levels))
    child_levels = starts(sizes)[levels].tolist()
    return AttentionPlan(
        forward=steps(forward, backward, vector_of_action[children], before),
        backward=steps(backward, composed, vector_of_action[children], after),
        contexts=steps(0, forward, vector_of_context, below),
        children=rows(ranges(offsets[trees], sizes), child_levels),
        segment=Constant(torch.from_numpy(np.repeat(np.arange(num_trees) - level_start, sizes)), child_levels),
        outputs=rows(reduce[trees], levels),
        local_trees=rows(trees, levels),
        composed=rows(vector_of_action[reduce[trees]], levels),
        labels=torch.from_numpy(derivations.actions[local_trees.entries[local_trees.offsets[:-1]]] - FIRST_NT),
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
    """o in every context (T, E), in the order of actions.

    ``given`` (L, E) are the vectors that are not composed, ``label_vectors`` (F, E) is drop(t) of every local tree.
    """
    num_contexts, num_local_trees, num_children = (
        len(nodes.index) for nodes in (plan.contexts[2], plan.local_trees, plan.forward[2])
    )
    size = given.shape[1]
    state_names = [f"{name}_{layer}" for layer in range(len(stack)) for name in ("hidden", "cell")]
    buffers = {
        "vectors": torch.cat([given, given.new_zeros(num_local_trees, size)]),
        "outputs": given.new_zeros(num_contexts, size),
        "queries": composition.label_query.index_select(0, plan.labels),
        "labels": label_vectors,
        # The last row of a state's buffer stays zero: it is the state before any step.
        **{name: given.new_zeros(num_children + 1, size // 2) for name in DIRECTIONS},
        **{name: given.new_zeros(num_contexts + 1, stack[0].hidden_size) for name in state_names},
    }
    weights = {
        "forward": _gates(composition.forward_lstm),
        "backward": _gates(composition.backward_lstm),
        "query": (composition.query.weight, None),
        "gate": (composition.gate.weight, composition.gate.bias),
        "compose": (composition.output.weight, composition.output.bias),
        "output": (output.weight, output.bias),
        **{f"stack_{layer}": _gates(lstm) for layer, lstm in enumerate(stack)},
    }
    vectors, below, pushed = plan.contexts
    attended = [plan.segment, *([_by_node(dropped.attended, plan.local_trees)] if dropped else [])]
    kinds = [
        _step_kind("forward", plan.forward),
        _step_kind("backward", plan.backward),
        Kind(
            function=_attend,
            reads=[
                *_in(["forward_hidden", "backward_hidden"], plan.children),
                *_in(["outputs"], plan.outputs),
                *_in(["queries", "labels"], plan.local_trees),
            ],
            constants=attended,
            writes=_in(["vectors"], plan.composed),
        ),
        Kind(
            function=_push,
            reads=[*_in(["vectors"], vectors), *_in(state_names, below)],
            constants=[_by_node(mask, pushed) for mask in dropped.states] if dropped else [],
            writes=_in([*state_names, "outputs"], pushed),
        ),
    ]
    return sweep(kinds, buffers, weights)["outputs"]


DIRECTIONS = ("forward_hidden", "forward_cell", "backward_hidden", "backward_cell")


def _gates(lstm: LSTMWeights) -> tuple[Tensor, Tensor]:
    return torch.cat([lstm.weight_input, lstm.weight_hidden], 1), lstm.bias


def _in(buffers: Iterable[str], rows: Rows) -> list[Rows]:
    return [Rows(buffer, rows.index, rows.offsets) for buffer in buffers]


def _by_node(values: Tensor, rows: Rows) -> Constant:
    return Constant(values.index_select(0, rows.index), rows.offsets)


def _step_kind(direction: str, plan: tuple[Rows, Rows, Rows]) -> Kind:
    (vectors, previous, written), states = plan, (f"{direction}_hidden", f"{direction}_cell")

    def step(matrices: Matrices, x: Tensor, hidden: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
        return lstm_cell(matrices[direction](torch.cat([x, hidden], 1)), cell)

    return Kind(function=step, reads=[*_in(["vectors"], vectors), *_in(states, previous)], writes=_in(states, written))


def _attend(
    matrices: Matrices,
    forward: Tensor,  # (children, E/2)
    backward: Tensor,
    summary: Tensor,  # s (n, E)
    query: Tensor,  # o (n, E)
    label: Tensor,  # t (n, E), dropped
    segment: Tensor,  # (children,)
    kept: Tensor | None = None,  # (n, E)
) -> tuple[Tensor]:
    children = torch.cat([forward, backward], 1)
    scores = (children * matrices["query"](torch.cat([query, summary], 1)).index_select(0, segment)).sum(1)
    weighted = segment_softmax(scores, segment, len(label))[:, None] * children
    attended = torch.zeros_like(label).index_add(0, segment, weighted)
    if kept is not None:
        attended = attended * kept
    gate = matrices["gate"](torch.cat([label, attended], 1)).sigmoid()
    return (matrices["compose"](gate * label + (1 - gate) * attended).relu(),)


def segment_softmax(scores: Tensor, segment: Tensor, num_segments: int) -> Tensor:
    """Softmax of scores (n,) within each segment (n,)."""
    empty = scores.new_full((num_segments,), -torch.inf)
    largest = empty.scatter_reduce(0, segment, scores.detach(), "amax")
    exponentials = (scores - largest.index_select(0, segment)).exp()
    totals = scores.new_zeros(num_segments).index_add(0, segment, exponentials)
    return exponentials / totals.index_select(0, segment)


def _push(matrices: Matrices, x: Tensor, *others: Tensor) -> tuple[Tensor, ...]:
    """Hidden and cell states of every layer and o, from the vector read, the states below and masks, if any."""
    num_layers = sum(name.startswith("stack_") for name in matrices)
    states, masks, written = others[: 2 * num_layers], others[2 * num_layers :], list[Tensor]()
    for layer in range(num_layers):
        hidden, cell = states[2 * layer : 2 * layer + 2]
        written += lstm_cell(matrices[f"stack_{layer}"](torch.cat([x, hidden], 1)), cell)
        x = written[-2] * masks[layer] if masks else written[-2]
    return *written, matrices["output"](x).relu()
