"""Composition of a closed constituent into one vector: by an LSTM, by attention, or not at all.

LSTM composition needs nothing but the children, so it is computed for a whole batch before the stack (``kernels.py``).
With attention a constituent's vector needs the stack, so both share one schedule of four kinds of node: a step forward
and a step backward over the children of a local tree, a local tree (attention, gate and output), and a context (the
push onto the stack through all layers). Rows are numbered as in ``plan.py``: contexts and actions alike, entries of
local trees as they stand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from treelm.models.layers.levels import Schedule, ranges, schedule, starts
from treelm.models.layers.lstm import LSTMWeights, lstm_cell
from treelm.models.layers.sweep import Constant, Kind, Matrix, Rows, sweep
from treelm.models.rnng.config import EMBEDDING_DEVIATION
from treelm.models.search.derivations import Derivations, LocalTrees

IntArray = NDArray[np.int64]


class AttentionComposition(nn.Module):
    """Gated attention over the children (Kuncoro et al. 2017, Sec. 4).

    h_i is the state at child i of a bidirectional LSTM over the children, E/2 units a direction; with the stack summary
    s (the network's output before the REDUCE) and per-label vectors o and t:
    a = softmax_i(h_i . V^T [o; s]); m = drop(sum_i a_i h_i); g = sigmoid(W_g [drop(t); m] + b_g);
    e = ReLU(W (g * drop(t) + (1 - g) * m) + b).
    """

    def __init__(self, embedding_size: int, num_labels: int) -> None:
        """Build for vectors of (even) size E."""
        super().__init__()
        self.forward_lstm = LSTMWeights(embedding_size, embedding_size // 2)
        self.backward_lstm = LSTMWeights(embedding_size, embedding_size // 2)
        self.label_query = nn.Parameter(torch.empty(num_labels, embedding_size))  # o
        self.label_vector = nn.Parameter(torch.empty(num_labels, embedding_size))  # t
        self.query = nn.Linear(2 * embedding_size, embedding_size, bias=False)  # V^T
        self.gate = nn.Linear(2 * embedding_size, embedding_size)
        self.output = nn.Linear(embedding_size, embedding_size)
        for table in (self.label_query, self.label_vector):
            nn.init.normal_(table, std=EMBEDDING_DEVIATION)


class LSTMComposition(nn.Module):
    """e = ReLU(W drop([f; b]) + b): a bidirectional LSTM over the label and the children (Dyer et al. 2016, Sec. 3.4).

    The forward LSTM reads NT, c_1 ... c_n and f is its last state; the backward LSTM reads NT, c_n ... c_1 and b is its
    last state.
    """

    def __init__(self, embedding_size: int) -> None:
        """Build for vectors of size E."""
        super().__init__()
        self.forward_lstm = LSTMWeights(embedding_size, embedding_size)
        self.backward_lstm = LSTMWeights(embedding_size, embedding_size)
        self.output = nn.Linear(2 * embedding_size, embedding_size)


class NoComposition(nn.Module):
    """The action LSTM: nothing is composed; REDUCE has an embedding, and below every item lies the previous one."""

    def __init__(self, embedding_size: int) -> None:
        """Build for vectors of size E."""
        super().__init__()
        self.reduce_embedding = nn.Parameter(torch.empty(embedding_size))
        nn.init.normal_(self.reduce_embedding, std=EMBEDDING_DEVIATION)


Composition = LSTMComposition | AttentionComposition | NoComposition


# Attention composition: the network, level by level.


@dataclass(frozen=True, kw_only=True, slots=True)
class Nodes:
    """Nodes of one kind in the order of their levels."""

    order: IntArray
    offsets: list[int]


@dataclass(frozen=True, kw_only=True, slots=True)
class Graph:
    """The joint graph of a batch: T contexts, M children in F local trees."""

    local_trees: LocalTrees  # without their nonterminals: entries are children only
    label_action: IntArray  # (F,) the NT action of each local tree
    below: IntArray  # (T,) the context right below; T for a start
    previous: IntArray  # (2M,) the step before, forward then backward; M for a first one
    forward: Nodes
    backward: Nodes
    composed: Nodes
    contexts: Nodes


def build_graph(derivations: Derivations, local_trees: LocalTrees, below: IntArray) -> Graph:
    """Schedule all nodes. ``local_trees`` are those to compose; ``below`` (T,) is -1 for starts."""
    children = _without_labels(local_trees)
    num_contexts, num_children, num_local_trees = len(below), len(children.entries), len(local_trees.reduce)
    first, end = children.offsets[:-1], children.offsets[1:]
    tree_of_action = np.full(num_contexts, -1)
    tree_of_action[local_trees.reduce] = np.arange(num_local_trees)
    # Numbers of nodes: contexts, forward steps, backward steps, local trees.
    forward, backward = num_contexts, num_contexts + num_children
    composed = backward + num_children
    pushed = np.where(derivations.is_start, -1, np.roll(tree_of_action, 1))
    child = tree_of_action[children.entries]
    steps = np.arange(num_children)
    before, after = steps - 1, steps + 1
    before[first] = after[end - 1] = -1

    def shifted(nodes: IntArray, by: int) -> IntArray:
        return np.where(nodes >= 0, nodes + by, -1)

    waits_for = np.full((composed + num_local_trees, 3), -1)
    waits_for[:forward, 0], waits_for[:forward, 1] = below, shifted(pushed, composed)
    waits_for[forward:backward, 0], waits_for[forward:backward, 1] = shifted(before, forward), shifted(child, composed)
    waits_for[backward:composed, 0], waits_for[backward:composed, 1] = (
        shifted(after, backward),
        shifted(child, composed),
    )
    waits_for[composed:] = np.stack([end - 1 + forward, first + backward, local_trees.reduce], 1)
    joint = schedule(waits_for)
    return Graph(
        local_trees=children,
        label_action=local_trees.entries[local_trees.offsets[:-1]],
        below=np.where(below >= 0, below, num_contexts),
        previous=np.where(np.concatenate([before, after]) >= 0, np.concatenate([before, after]), num_children),
        contexts=_nodes_between(joint, 0, forward),
        forward=_nodes_between(joint, forward, backward),
        backward=_nodes_between(joint, backward, composed),
        composed=_nodes_between(joint, composed, len(waits_for)),
    )


def _without_labels(local_trees: LocalTrees) -> LocalTrees:
    num_local_trees = len(local_trees.reduce)
    is_child = np.ones(len(local_trees.entries), np.bool_)
    is_child[local_trees.offsets[:-1]] = False
    return LocalTrees(
        entries=local_trees.entries[is_child],
        offsets=local_trees.offsets - np.arange(num_local_trees + 1),
        reduce=local_trees.reduce,
    )


def _nodes_between(joint: Schedule, first: int, end: int) -> Nodes:
    positions = joint.position[first:end]
    order = np.argsort(positions)
    return Nodes(order=order, offsets=np.searchsorted(positions[order], joint.offsets).tolist())


# Legend: T contexts, F local trees, M children, L given vectors, E size of a vector, H of a state.

Matrices = Mapping[str, Matrix]


class AttentionPlan(NamedTuple):
    """``Graph``, ready for computing: rows of buffers by level."""

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
    """Scaled dropout masks, in the numbering of the graph."""

    states: Sequence[Tensor]  # (T, H) between layers and, last, before the output
    attended: Tensor  # (F, E)


def plan_attention(
    graph: Graph, vector_of_context: IntArray, vector_of_action: IntArray, labels: IntArray
) -> AttentionPlan:
    """Turn nodes into rows. ``labels`` (T,) is the label of each NT action."""

    def rows(nodes: Nodes, index: IntArray, offsets: list[int] | None = None) -> Rows:
        return Rows("", torch.from_numpy(index), offsets or nodes.offsets)

    def steps(nodes: Nodes, previous: IntArray) -> tuple[Rows, Rows, Rows]:
        vectors = vector_of_action[graph.local_trees.entries[nodes.order]]
        return rows(nodes, vectors), rows(nodes, previous[nodes.order]), rows(nodes, nodes.order)

    local_trees, composed = graph.local_trees, graph.composed
    num_children = len(local_trees.entries)
    sizes = np.diff(local_trees.offsets)[composed.order]
    child_offsets = starts(sizes)[composed.offsets].tolist()
    level_start = np.repeat(composed.offsets[:-1], np.diff(composed.offsets))
    segment = np.repeat(np.arange(len(sizes)) - level_start, sizes)
    contexts = graph.contexts
    return AttentionPlan(
        forward=steps(graph.forward, graph.previous[:num_children]),
        backward=steps(graph.backward, graph.previous[num_children:]),
        contexts=(
            rows(contexts, vector_of_context[contexts.order]),
            rows(contexts, graph.below[contexts.order]),
            rows(contexts, contexts.order),
        ),
        children=rows(composed, ranges(local_trees.offsets[composed.order], sizes), child_offsets),
        segment=Constant(torch.from_numpy(segment), child_offsets),
        outputs=rows(composed, local_trees.reduce[composed.order]),
        local_trees=rows(composed, composed.order),
        composed=rows(composed, vector_of_action[local_trees.reduce[composed.order]]),
        labels=torch.from_numpy(labels[graph.label_action]),
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
    kinds = [
        _step_kind("forward", plan.forward),
        _step_kind("backward", plan.backward),
        _composition_kind(plan, dropped),
        _context_kind(plan, state_names, dropped),
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
    vectors, previous, written = plan
    states = f"{direction}_hidden", f"{direction}_cell"

    def step(matrices: Matrices, x: Tensor, hidden: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
        return lstm_cell(matrices[direction](torch.cat([x, hidden], 1)), cell)

    return Kind(function=step, reads=[*_in(["vectors"], vectors), *_in(states, previous)], writes=_in(states, written))


def _composition_kind(plan: AttentionPlan, dropped: Dropped | None) -> Kind:
    reads = [
        *_in(["forward_hidden", "backward_hidden"], plan.children),
        *_in(["outputs"], plan.outputs),
        *_in(["queries", "labels"], plan.local_trees),
    ]
    constants = [plan.segment, *([_by_node(dropped.attended, plan.local_trees)] if dropped else [])]
    return Kind(function=_attend, reads=reads, constants=constants, writes=_in(["vectors"], plan.composed))


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


def _context_kind(plan: AttentionPlan, state_names: Sequence[str], dropped: Dropped | None) -> Kind:
    vectors, below, written = plan.contexts
    num_layers = len(state_names) // 2
    return Kind(
        function=_push(num_layers),
        reads=[*_in(["vectors"], vectors), *_in(state_names, below)],
        constants=[_by_node(mask, written) for mask in dropped.states] if dropped else [],
        writes=_in([*state_names, "outputs"], written),
    )


def _push(num_layers: int) -> Callable[..., tuple[Tensor, ...]]:
    def push(matrices: Matrices, x: Tensor, *others: Tensor) -> tuple[Tensor, ...]:
        states, masks = others[: 2 * num_layers], others[2 * num_layers :]
        written: list[Tensor] = []
        for layer in range(num_layers):
            hidden, cell = states[2 * layer : 2 * layer + 2]
            written += lstm_cell(matrices[f"stack_{layer}"](torch.cat([x, hidden], 1)), cell)
            x = written[-2] * masks[layer] if masks else written[-2]
        return *written, matrices["output"](x).relu()

    return push
