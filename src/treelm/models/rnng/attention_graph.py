"""The schedule of attention composition: a constituent's vector needs the stack, so both share one schedule.

Four kinds of node: a step forward and a step backward over the children of a family, a family (attention, gate and
output), and a context (the push onto the stack through all layers). Rows are numbered as in ``structure``: contexts and
actions alike, entries of families as they stand.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from treelm.models.layers.levels import Schedule, schedule
from treelm.models.rnng.structure import Derivations, Families

IntArray = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True, slots=True)
class Nodes:
    """Nodes of one kind in the order of their levels."""

    order: IntArray
    offsets: list[int]


@dataclass(frozen=True, kw_only=True, slots=True)
class Graph:
    """The joint graph of a batch: T contexts, M children in F families."""

    families: Families  # without their nonterminals: entries are children only
    label_action: IntArray  # (F,) the NT action of each family
    below: IntArray  # (T,) the context right below; T for a start
    previous: IntArray  # (2M,) the step before, forward then backward; M for a first one
    forward: Nodes
    backward: Nodes
    composed: Nodes
    contexts: Nodes


def build_graph(derivations: Derivations, families: Families, below: IntArray) -> Graph:
    """Schedule all nodes. ``families`` are those to compose; ``below`` (T,) is -1 for starts."""
    children = _without_labels(families)
    num_contexts, num_children, num_families = len(below), len(children.entries), len(families.reduce)
    first, end = children.offsets[:-1], children.offsets[1:]
    family_of_action = np.full(num_contexts, -1)
    family_of_action[families.reduce] = np.arange(num_families)
    # Numbers of nodes: contexts, forward steps, backward steps, families.
    forward, backward = num_contexts, num_contexts + num_children
    composed = backward + num_children
    pushed = np.where(derivations.is_start, -1, np.roll(family_of_action, 1))
    child = family_of_action[children.entries]
    steps = np.arange(num_children)
    before, after = steps - 1, steps + 1
    before[first] = after[end - 1] = -1

    def shifted(nodes: IntArray, by: int) -> IntArray:
        return np.where(nodes >= 0, nodes + by, -1)

    waits_for = np.full((composed + num_families, 3), -1)
    waits_for[:forward, 0], waits_for[:forward, 1] = below, shifted(pushed, composed)
    waits_for[forward:backward, 0], waits_for[forward:backward, 1] = shifted(before, forward), shifted(child, composed)
    waits_for[backward:composed, 0], waits_for[backward:composed, 1] = (
        shifted(after, backward),
        shifted(child, composed),
    )
    waits_for[composed:] = np.stack([end - 1 + forward, first + backward, families.reduce], 1)
    joint = schedule(waits_for)
    return Graph(
        families=children,
        label_action=families.entries[families.offsets[:-1]],
        below=np.where(below >= 0, below, num_contexts),
        previous=np.where(np.concatenate([before, after]) >= 0, np.concatenate([before, after]), num_children),
        contexts=_nodes_between(joint, 0, forward),
        forward=_nodes_between(joint, forward, backward),
        backward=_nodes_between(joint, backward, composed),
        composed=_nodes_between(joint, composed, len(waits_for)),
    )


def _without_labels(families: Families) -> Families:
    num_families = len(families.reduce)
    is_child = np.ones(len(families.entries), np.bool_)
    is_child[families.offsets[:-1]] = False
    return Families(
        entries=families.entries[is_child],
        offsets=families.offsets - np.arange(num_families + 1),
        reduce=families.reduce,
    )


def _nodes_between(joint: Schedule, first: int, end: int) -> Nodes:
    positions = joint.position[first:end]
    order = np.argsort(positions)
    return Nodes(order=order, offsets=np.searchsorted(positions[order], joint.offsets).tolist())
