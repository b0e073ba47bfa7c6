"""SOM's structure straight from its definitions, with nested lists: the oracle of the array code.

The naive all-slots network that the fast one is held against is ``all_slots``.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treelm.corpora.encoding import SentenceBatch
from treelm.trees.transitions import FIRST_NT, REDUCE, SHIFT

Nested = Any
"""A tree: a position, or a list of trees."""


def first(tree: Nested) -> int:
    while isinstance(tree, list):
        tree = tree[0]
    return tree


def random_tree(num_leaves: int, random: Random, start: int = 0, max_children: int = 5) -> Nested:
    if num_leaves == 1:
        return start
    num_children = random.randint(2, min(max_children, num_leaves))
    cuts = [0, *sorted(random.sample(range(1, num_leaves), num_children - 1)), num_leaves]
    return [random_tree(b - a, random, start + a, max_children) for a, b in itertools.pairwise(cuts)]


def binarised(tree: Nested) -> Nested:
    """Left-branching, as nested pairs."""
    if not isinstance(tree, list):
        return tree
    whole = binarised(tree[0])
    for child in tree[1:]:
        whole = (whole, binarised(child))
    return whole


def decode(decisions: Sequence[int], num_slots: int) -> Nested:
    """The binary tree of the decisions theta_0 .. theta_t; what is open at the end is closed: nested pairs."""
    stack: list[tuple[int, Nested]] = [(num_slots - 1, 0)]
    for t in range(1, len(decisions)):
        slot, tree = stack.pop()
        while slot < decisions[t]:
            slot, left = stack.pop()
            tree = (left, tree)
        stack += [(slot, tree), (decisions[t] - 1, t)]
    _, tree = stack.pop()
    while stack:
        tree = (stack.pop()[1], tree)
    return tree


def siblings_of(tree: Nested, num_positions: int) -> list[int]:
    """First siblings by walking the tree: a child that is not the first one starts a position with this sibling."""
    found = [0] * num_positions

    def walk(node: Nested) -> None:
        if isinstance(node, list):
            for child in node[1:]:
                found[first(child)] = first(node)
            for child in node:
                walk(child)

    walk(tree)
    return found


def actions_of(tree: Nested) -> list[int]:
    if not isinstance(tree, list):
        return [SHIFT]
    return [FIRST_NT, *(action for child in tree for action in actions_of(child)), REDUCE]


def with_boundary(tree: Nested) -> Nested:
    """Positions count from 1, and the root takes in position 0."""

    def shifted(node: Nested) -> Nested:
        return [shifted(child) for child in node] if isinstance(node, list) else node + 1

    moved = shifted(tree)
    return [0, *moved] if isinstance(moved, list) else [0, moved]


def without_boundary(pair: Nested) -> Nested:
    """Drop position 0 from nested pairs, and count from 0 again."""
    if not isinstance(pair, tuple):
        return pair - 1
    left, right = pair
    return without_boundary(right) if left == 0 else (without_boundary(left), without_boundary(right))


def batch_of(
    trees: list[Nested], tokens: list[list[int]] | None = None, seed: int = 0, vocabulary: int = 7
) -> SentenceBatch:
    """A batch of trees whose root is a constituent (a single leaf gets one)."""
    random = np.random.default_rng(seed)
    actions = [actions_of(tree) if isinstance(tree, list) else [FIRST_NT, SHIFT, REDUCE] for tree in trees]
    lengths = [sum(action == SHIFT for action in sentence) for sentence in actions]
    if tokens is None:
        tokens = [random.integers(0, vocabulary, length).tolist() for length in lengths]
    return SentenceBatch(
        tokens=np.array(list(itertools.chain(*tokens)), np.int64),
        token_offsets=np.cumsum([0, *lengths]),
        num_words=np.array(lengths),
        actions=np.array(list(itertools.chain(*actions)), np.int64),
        action_offsets=np.cumsum([0, *map(len, actions)]),
        names=tuple(f"test:{i}" for i in range(len(trees))),
    )


def corrected_label(siblings: list[int], decisions: list[int]) -> int:
    """The corrected oracle in closed form, for the position after these decisions."""
    t = len(decisions)
    j = siblings[t]
    return max(0, decisions[j] - 1) if j == t - 1 else max(decisions[j + 1 : t])


def num_recovered(pair: Nested, gold: set[tuple[int, int]]) -> int:
    """Gold constituents in nested pairs."""
    return len(spans_of(pair) & gold)


def spans_of(pair: Nested) -> set[tuple[int, int]]:
    found: set[tuple[int, int]] = set()

    def walk(node: Nested) -> tuple[int, int]:
        if not isinstance(node, tuple):
            return node, node
        span = walk(node[0])[0], walk(node[1])[1]
        found.add(span)
        return span

    walk(pair)
    return found


IntArray = NDArray[np.int64]
