"""The scheduler: once the decisions of a batch are known, a graph is computed level by level instead of node by node.

A node's level is one more than the highest level among its predecessors. So all nodes of a level can be computed in one
dense call, and the number of sequential steps is the longest path in the whole batch. For example, of four nodes the
last two wait for the first, and one of them for the second too:

>>> plan = schedule(np.array([[-1, -1], [0, -1], [0, 1], [0, -1]]))
>>> plan.order.tolist(), plan.offsets.tolist()  # level 0 is node 0, level 1 nodes 1 and 3, level 2 node 2
([0, 1, 3, 2], [0, 1, 3, 4])
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

IntArray = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True, slots=True)
class Schedule:
    """Nodes in the order of their levels: level k is ``order[offsets[k]:offsets[k + 1]]``."""

    order: IntArray  # (nodes,) the node at each position
    position: IntArray  # (nodes,) the position of each node: the inverse of order
    offsets: IntArray  # (levels + 1,)

    @property
    def num_levels(self) -> int:
        """Number of sequential steps."""
        return len(self.offsets) - 1


def schedule(predecessors: IntArray) -> Schedule:
    """The earliest schedule of a graph, where node i waits for row i of ``predecessors`` (nodes, width); -1 is none."""
    return schedule_levels(earliest_levels(predecessors))


def schedule_levels(levels: IntArray) -> Schedule:
    """The schedule of nodes whose levels (nodes,) are known; nodes of one level keep their order."""
    num_levels = int(levels.max()) + 1 if len(levels) else 0
    order = np.argsort(levels.astype(np.min_scalar_type(num_levels)), kind="stable")  # few bits are sorted faster
    position = np.empty_like(order)
    position[order] = np.arange(len(order))
    return Schedule(order=order, position=position, offsets=starts(np.bincount(levels, minlength=num_levels)))


def schedule_tree(parents: IntArray, levels: IntArray) -> Schedule:
    """The schedule of a forest with these levels (nodes,); nodes of a level are ordered by ``parents`` (nodes,)."""
    plain = schedule_levels(levels)
    order, position = plain.order.copy(), plain.position.copy()
    for first, end in pairwise(plain.offsets[1:].tolist()):
        nodes = order[first:end]
        order[first:end] = nodes = nodes[np.argsort(position[parents[nodes]], kind="stable")]
        position[nodes] = np.arange(first, end)
    return Schedule(order=order, position=position, offsets=plain.offsets)


class Forest(NamedTuple):
    """The rows of a forest, ordered by level and, within a level, by tree: the plan of the kernels in ``fused.py``."""

    below: Tensor  # (n,) the row of the level before from which each row steps; -1 at the roots, which are level 0
    children: Tensor  # (n + 1,) the rows children[r]:children[r + 1] step from row r
    bounds: Tensor  # (levels, trees + 1) the rows of tree t in level k are bounds[k, t]:bounds[k, t + 1]
    is_whole: bool  # whether one launch computes all levels, or each level is a launch

    @property
    def spans(self) -> list[range]:
        """The levels of each launch."""
        num_levels = len(self.bounds)
        return [range(num_levels)] if self.is_whole else [range(level, level + 1) for level in range(num_levels)]


def plan_forest(below: IntArray, offsets: IntArray, *, is_whole: bool) -> Forest:
    """Plan a forest where level k is the rows offsets[k]:offsets[k + 1]; the S rows of level 0 are roots.

    ``below`` (n - S,) is the row from which each other row steps; it must not descend. Tensors are on the CPU.
    """
    num_trees, num_rows = int(offsets[1]), int(offsets[-1])
    tree = np.arange(num_rows)
    for first, end in pairwise(offsets[1:].tolist()):
        tree[first:end] = tree[below[first - num_trees : end - num_trees]]
    level = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    children = num_trees + np.searchsorted(below, np.arange(num_rows + 1))
    counts = np.bincount(level * num_trees + tree, minlength=(len(offsets) - 1) * num_trees)
    ends = offsets[:-1, None] + np.cumsum(counts.reshape(-1, num_trees), 1)
    return Forest(
        below=torch.from_numpy(np.pad(below, (num_trees, 0), constant_values=-1)),
        children=torch.from_numpy(children),
        bounds=torch.from_numpy(np.hstack([offsets[:-1, None], ends])),
        is_whole=is_whole,
    )


def earliest_levels(predecessors: IntArray) -> IntArray:
    """The level of every node (nodes,): the length of the longest path to it, in a graph without cycles.

    Nodes that wait for nothing are removed, level by level, until none is left; every edge is looked at once.
    """
    is_edge = predecessors >= 0
    num_waiting = is_edge.sum(1)
    sources = predecessors[is_edge]
    successors = np.nonzero(is_edge)[0][np.argsort(sources, kind="stable")]
    num_successors = np.bincount(sources, minlength=len(predecessors))
    first_successor = starts(num_successors)
    levels = np.full(len(predecessors), -1, np.int64)
    frontier, level = np.flatnonzero(num_waiting == 0), 0
    while len(frontier):
        levels[frontier] = level
        reached = successors[ranges(first_successor[frontier], num_successors[frontier])]
        np.subtract.at(num_waiting, reached, 1)
        frontier, level = np.unique(reached[num_waiting[reached] == 0]), level + 1
    return levels


def blocks(offsets: Sequence[int], num_rows: int) -> list[tuple[int, int]]:
    """Cut levels into blocks (start, end) of at most ``num_rows`` rows, which stay in the cache between operations."""
    return [
        (start, min(start + num_rows, level_end))
        for level_start, level_end in pairwise(offsets)
        for start in range(level_start, level_end, num_rows)
    ]


def block_rows(device: torch.device, num_rows: int) -> int:
    """The most rows of a block: ``num_rows`` on a CPU; on a GPU, where every block takes calls, whole levels."""
    return num_rows if device.type == "cpu" else sys.maxsize


def starts(counts: IntArray) -> IntArray:
    """Starts of consecutive blocks of these sizes, and the end of the last one: 0, c_0, c_0 + c_1, ...

    >>> starts(np.array([2, 0, 3])).tolist()
    [0, 2, 2, 5]
    """
    return np.concatenate([[0], np.cumsum(counts)])


def ranges(first: IntArray, counts: IntArray) -> IntArray:
    """The concatenation of ``first[i], first[i] + 1, ..., first[i] + counts[i] - 1`` over i.

    >>> ranges(np.array([5, 1]), np.array([2, 3])).tolist()
    [5, 6, 1, 2, 3]
    """
    begins = starts(counts)
    return np.repeat(first - begins[:-1], counts) + np.arange(begins[-1])
