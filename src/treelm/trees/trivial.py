"""Trees that know nothing of the language, and the best that binary trees can do: what parsers are compared with.

All have the label ``X`` by default; a single word becomes a constituent of one word.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from treelm.trees.distances import tree_from_distances, tree_from_splits
from treelm.trees.transforms import binarise_left, binarise_right, collapse_unaries
from treelm.trees.tree import Tree, from_flat


def left_branching(words: Sequence[str], label: str = "X") -> Tree:
    """``(((a b) c) d)``."""
    return tree_from_splits(words, lambda start, end: end - 1, label)


def right_branching(words: Sequence[str], label: str = "X") -> Tree:
    """``(a (b (c d)))``."""
    return tree_from_splits(words, lambda start, end: start + 1, label)


def balanced(words: Sequence[str], label: str = "X") -> Tree:
    """Split in halves, the left one longer when they differ: ``((a b) c)``."""
    return tree_from_splits(words, lambda start, end: (start + end + 1) // 2, label)


def random_splits(words: Sequence[str], generator: np.random.Generator, label: str = "X") -> Tree:
    """Split each range of words anywhere with equal probability."""
    return tree_from_distances(words, generator.permutation(len(words)), label=label)


def random_uniform(words: Sequence[str], generator: np.random.Generator, label: str = "X") -> Tree:
    """Any of the binary trees with equal probability (algorithm R of Knuth 4A, 7.2.1.6, after Rémy 1985)."""
    if not words:
        raise ValueError("a tree has words")
    # Nodes 0, 2, 4, ... are leaves; node 2k - 1 is inserted with leaf 2k on either side, above any node there is.
    links = [0]  # links[0] is the top, links[2k - 1] and links[2k] the children of node 2k - 1
    for k in range(1, len(words)):
        chosen, side = divmod(int(generator.integers(4 * k - 2)), 2)
        links += [links[chosen], 2 * k] if side else [2 * k, links[chosen]]
        links[chosen] = 2 * k - 1
    remaining = iter(words)
    flat: list[str | tuple[str, int]] = [] if len(words) > 1 else [(label, 1)]
    todo = [links[0]]
    while todo:
        node = todo.pop()
        if node % 2:
            flat.append((label, 2))
            todo += [links[node + 1], links[node]]
        else:
            flat.append(next(remaining))
    return from_flat(flat)


def is_binary(tree: Tree) -> bool:
    """Tell whether every constituent has two children, but for one that is a sentence of one word."""
    return all(len(one.children) == 2 for one in tree.constituents()) or len(tree.flat()) == 2


def binary_upper_bound(gold: Tree, branching: Literal["right", "left"] = "right") -> Tree:
    """The gold tree made binary, as a prediction: no binary tree has a higher recall of unlabelled constituents.

    Chains of unary constituents collapse to their top; constituents that binarising adds have the label of their
    parent.
    """
    if branching not in ("right", "left"):
        raise ValueError(f'branching {branching!r}: choose "right" or "left"')
    binarise = binarise_right if branching == "right" else binarise_left
    return binarise(collapse_unaries(gold), "")
