"""The network with attention composition, level by level (schedule: ``attention_graph``)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from treelm.models.layers.levels import ranges, starts
from treelm.models.layers.lstm import LSTMWeights, lstm_cell
from treelm.models.layers.sweep import Constant, Kind, Matrix, Rows, sweep
from treelm.models.rnng.attention_graph import Graph, IntArray, Nodes
from treelm.models.rnng.composition import AttentionComposition

# Legend: T contexts, F families, M children, L given vectors, E size of a vector, H of a state.

Matrices = Mapping[str, Matrix]


class Plan(NamedTuple):
    """``Graph``, ready for computing: rows of buffers by level."""

    forward: tuple[Rows, Rows, Rows]  # vector read, step before, step written
    backward: tuple[Rows, Rows, Rows]
    contexts: tuple[Rows, Rows, Rows]  # vector read, context below, context written
    children: Rows  # steps over the children of the families
    segment: Constant  # which of the level's families each child belongs to
    outputs: Rows  # the context before each family's REDUCE
    families: Rows  # families by their number
    composed: Rows  # the vector that each family writes
    labels: Tensor  # (F,)


class Dropped(NamedTuple):
    """Scaled dropout masks, in the numbering of the graph."""

    states: Sequence[Tensor]  # (T, H) between layers and, last, before the output
    attended: Tensor  # (F, E)


def plan_attention(graph: Graph, vector_of_context: IntArray, vector_of_action: IntArray, labels: IntArray) -> Plan:
    """Turn nodes into rows. ``labels`` (T,) is the label of each NT action."""

    def rows(nodes: Nodes, index: IntArray, offsets: list[int] | None = None) -> Rows:
        return Rows("", torch.from_numpy(index), offsets or nodes.offsets)

    def steps(nodes: Nodes, previous: IntArray) -> tuple[Rows, Rows, Rows]:
        vectors = vector_of_action[graph.families.entries[nodes.order]]
        return rows(nodes, vectors), rows(nodes, previous[nodes.order]), rows(nodes, nodes.order)

    families, composed = graph.families, graph.composed
    num_children = len(families.entries)
    sizes = np.diff(families.offsets)[composed.order]
    child_offsets = starts(sizes)[composed.offsets].tolist()
    level_start = np.repeat(composed.offsets[:-1], np.diff(composed.offsets))
    segment = np.repeat(np.arange(len(sizes)) - level_start, sizes)
    contexts = graph.contexts
    return Plan(
        forward=steps(graph.forward, graph.previous[:num_children]),
        backward=steps(graph.backward, graph.previous[num_children:]),
        contexts=(
            rows(contexts, vector_of_context[contexts.order]),
            rows(contexts, graph.below[contexts.order]),
            rows(contexts, contexts.order),
        ),
        children=rows(composed, ranges(families.offsets[composed.order], sizes), child_offsets),
        segment=Constant(torch.from_numpy(segment), child_offsets),
        outputs=rows(composed, families.reduce[composed.order]),
        families=rows(composed, composed.order),
        composed=rows(composed, vector_of_action[families.reduce[composed.order]]),
        labels=torch.from_numpy(labels[graph.label_action]),
    )


def attention_outputs(
    given: Tensor,
    composition: AttentionComposition,
    stack: Sequence[LSTMWeights],
    output: nn.Linear,
    dropped: Dropped | None,
    label_vectors: Tensor,
    plan: Plan,
) -> Tensor:
    """o in every context (T, E), in the order of actions.

    ``given`` (L, E) are the vectors that are not composed, ``label_vectors`` (F, E) is drop(t) of every family.
    """
    num_contexts, num_families, num_children = (
        len(nodes.index) for nodes in (plan.contexts[2], plan.families, plan.forward[2])
    )
    size = given.shape[1]
    state_names = [f"{name}_{layer}" for layer in range(len(stack)) for name in ("hidden", "cell")]
    buffers = {
        "vectors": torch.cat([given, given.new_zeros(num_families, size)]),
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
        _family_kind(plan, dropped),
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


def _family_kind(plan: Plan, dropped: Dropped | None) -> Kind:
    reads = [
        *_in(["forward_hidden", "backward_hidden"], plan.children),
        *_in(["outputs"], plan.outputs),
        *_in(["queries", "labels"], plan.families),
    ]
    constants = [plan.segment, *([_by_node(dropped.attended, plan.families)] if dropped else [])]
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


def _context_kind(plan: Plan, state_names: Sequence[str], dropped: Dropped | None) -> Kind:
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
