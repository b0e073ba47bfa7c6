"""The scheduler: once decisions are known, compute a graph level by level instead of node by node.

A node's level is one more than the highest level among its predecessors, so all nodes of a level can be computed in one
dense call, and the number of sequential steps is the longest path of the whole batch.
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
    """Nodes sorted by level, equals in their own order. Level k is ``order[offsets[k]:offsets[k + 1]]``."""

    order: IntArray  # (nodes,) the node at each position
    position: IntArray  # (nodes,) the position of each node: the inverse of order
    offsets: IntArray  # (levels + 1,)

    @property
    def num_levels(self) -> int:
        """Number of sequential steps."""
        return len(self.offsets) - 1


def schedule(predecessors: IntArray) -> Schedule:
    """The earliest schedule of a graph: row i of ``predecessors`` (nodes, width) is what node i waits for, -1 none."""
    return schedule_levels(earliest_levels(predecessors))


def schedule_levels(levels: IntArray) -> Schedule:
    """The schedule of nodes whose levels (nodes,) are known."""
    order = np.argsort(levels, kind="stable")
    position = np.empty_like(order)
    position[order] = np.arange(len(order))
    num_levels = int(levels.max()) + 1 if len(levels) else 0
    return Schedule(order=order, position=position, offsets=starts(np.bincount(levels, minlength=num_levels)))


def schedule_tree(parents: IntArray, levels: IntArray) -> Schedule:
    """The schedule of a forest, by level; within each level rows stand in the order of their parents (nodes,)."""
    plain = schedule_levels(levels)
    order, position = plain.order.copy(), plain.position.copy()
    for first, end in pairwise(plain.offsets[1:].tolist()):
        nodes = order[first:end]
        order[first:end] = nodes = nodes[np.argsort(position[parents[nodes]], kind="stable")]
        position[nodes] = np.arange(first, end)
    return Schedule(order=order, position=position, offsets=plain.offsets)


class Forest(NamedTuple):
    """Rows by level and, in a level, by tree: what kernels need that walk down the trees (``fused.py``)."""

    below: Tensor  # (n,) the row of the level before that each row steps from; -1 at the roots, which are level 0
    children: Tensor  # (n + 1,) row r is stepped from by the rows children[r]:children[r + 1]
    bounds: Tensor  # (levels, trees + 1) the rows of tree t in level k are bounds[k, t]:bounds[k, t + 1]
    is_whole: bool  # all levels are one launch, else each is one

    @property
    def spans(self) -> list[range]:
        """The levels of each launch."""
        num_levels = len(self.bounds)
        return [range(num_levels)] if self.is_whole else [range(level, level + 1) for level in range(num_levels)]


def plan_forest(below: IntArray, offsets: IntArray, *, is_whole: bool) -> Forest:
    """``below`` (n - S,) is the row that each row of level 1 and more steps from; it must never descend.

    Level k is the rows offsets[k]:offsets[k + 1]; the S rows of level 0 start trees. Tensors are on the CPU.
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
    """Level of every node (nodes,): the length of the longest path to it, in a graph without cycles.

    Peels the graph: a frontier releases its successors, and those that wait for nothing else are the next frontier. So
    every edge is looked at once.
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
    """Cut levels into blocks of at most so many rows, which stay in the cache from one operation to the next."""
    return [
        (start, min(start + num_rows, level_end))
        for level_start, level_end in pairwise(offsets)
        for start in range(level_start, level_end, num_rows)
    ]


def block_rows(device: torch.device, num_rows: int) -> int:
    """Rows of a block: this many on a CPU, and whole levels on a GPU, to which every block costs calls."""
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
