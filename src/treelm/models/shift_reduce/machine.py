"""The stacks of many sentences, and what is known of all nodes that were ever pushed on one.

Every action pushes a node: SHIFT the next position, REDUCE the constituent of the two items on top, which it pops.
Nodes are numbered as they are pushed; node 0 stands below every stack.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from treelm.models.layers.binary_structure import ANY_DEPTH, decoded_spans, word_tree
from treelm.models.states import IncrementalState
from treelm.trees.tree import Tree

IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]


class Nodes(NamedTuple):
    """Nodes in the order of their numbers, arrays (n,)."""

    below: IntArray  # the node that each one stands on
    left: IntArray  # what a constituent consists of; 0 for a position
    right: IntArray
    heights: IntArray  # of the stack with the node


class ParserStacks:
    """The stacks of n sentences, all empty at first. Positions count from 0, the sentence boundary ``<s>``."""

    def __init__(self, num_rows: int) -> None:
        """Begin with empty stacks."""
        self.heights = np.zeros(num_rows, np.int64)
        self.num_read = np.zeros(num_rows, np.int64)  # positions
        self.num_nodes = 1
        self.shifted_at: list[tuple[int, ...]] = [()] * num_rows  # heights at which positions were shifted
        self._nodes = np.zeros((num_rows, 8), np.int64)  # by place, bottom first
        self._starts = np.zeros((num_rows, 8), np.int64)  # first position of the item at each place

    def copy(self) -> ParserStacks:
        """Stacks that can change by themselves."""
        other = ParserStacks(0)
        other.heights, other.num_read, other.num_nodes = self.heights.copy(), self.num_read.copy(), self.num_nodes
        other.shifted_at = list(self.shifted_at)
        other._nodes, other._starts = self._nodes.copy(), self._starts.copy()
        return other

    def top(self, rows: IntArray) -> IntArray:
        """The nodes on top of these stacks, which are not empty."""
        return self._nodes[rows, self.heights[rows] - 1]

    def best_action(self, rows: IntArray, siblings: IntArray) -> BoolArray:
        """The dynamic oracle: whether to REDUCE before shifting positions whose first siblings (n,) are known.

        The position must come to stand on the item that holds its first sibling, so what started later is in the way.
        """
        later: BoolArray = self._starts[rows, self.heights[rows] - 1] > siblings
        return later

    def step(self, rows: IntArray, reduces: BoolArray) -> Nodes:
        """One action in each of these stacks, REDUCE where ``reduces``, else SHIFT; gives the nodes that are pushed."""
        heights = self.heights[rows]
        base = np.where(reduces, heights - 2, heights)
        while self._nodes.shape[1] <= base.max():
            self._nodes, self._starts = (np.hstack([a, np.zeros_like(a)]) for a in (self._nodes, self._starts))
        left = np.where(reduces, self._nodes[rows, heights - 2], 0)
        right = np.where(reduces, self._nodes[rows, heights - 1], 0)
        below = np.where(base > 0, self._nodes[rows, base - 1], 0)
        for row in rows[~reduces].tolist():
            self.shifted_at[row] = (*self.shifted_at[row], int(self.heights[row]))
        self._starts[rows, base] = np.where(reduces, self._starts[rows, heights - 2], self.num_read[rows])
        self._nodes[rows, base] = self.num_nodes + np.arange(len(rows))
        self.num_nodes += len(rows)
        self.heights[rows] = base + 1
        self.num_read[rows] += ~reduces
        return Nodes(below, left, right, base + 1)


@dataclass(kw_only=True)
class Bank:
    """The vectors of all nodes. Node 0, below every stack, is zero."""

    items: Tensor  # (nodes or more, D)
    hidden: Tensor  # (layers, nodes or more, D)
    cell: Tensor  # (layers, nodes or more, D)

    @classmethod
    def empty(cls, like: Tensor, num_layers: int, capacity: int = 64) -> Bank:
        """Memory for some nodes of the size of ``like`` (.., D)."""
        zeros = like.new_zeros(num_layers, capacity, like.shape[-1])
        return cls(items=zeros[0].clone(), hidden=zeros, cell=zeros.clone())

    def copy(self) -> Bank:
        """A bank that can change by itself."""
        return Bank(items=self.items.clone(), hidden=self.hidden.clone(), cell=self.cell.clone())

    def make_room(self, num_nodes: int) -> None:
        """Grow to this many nodes at least, by doubling."""
        while len(self.items) < num_nodes:
            self.items = torch.cat([self.items, torch.zeros_like(self.items)])
            self.hidden = torch.cat([self.hidden, torch.zeros_like(self.hidden)], 1)
            self.cell = torch.cat([self.cell, torch.zeros_like(self.cell)], 1)


@dataclass(frozen=True, kw_only=True)
class ParserState(IncrementalState):
    """The stacks of n sentences after some words, as one state that is never changed."""

    stacks: ParserStacks
    bank: Bank


def partial_tree(words: Sequence[str], shifted_at: Sequence[int], word_numbers: IntArray) -> Tree:
    """The tree of the heights at which the boundary and all tokens were shifted, open constituents closed."""
    decisions = [ANY_DEPTH - height for height in shifted_at]
    return word_tree(words, decoded_spans(decisions, ANY_DEPTH), word_numbers)
