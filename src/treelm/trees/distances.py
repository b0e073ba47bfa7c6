"""Trees from numbers: syntactic distances (appendix A, Shen et al. 2018a) and scores of spans (Peng et al. 2019).

A distance says how deep the tree splits between neighbouring words: ``distances[i]`` stands between words i - 1 and i,
``distances[0]`` before the first word.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from treelm.trees.tree import Tree, from_flat, heights_of


def distances_from_tree(tree: Tree) -> NDArray[np.int64]:
    """For each word, the height of the smallest constituent that holds it and the word before; 0 for the first word."""
    heights = heights_of(tree)
    distances: list[int] = []
    todo: list[tuple[Tree | str, int]] = [(tree, 0)]
    while todo:
        item, distance = todo.pop()
        if isinstance(item, str):
            distances.append(distance)
        else:
            first, *others = item.children
            todo.extend((child, heights[id(item)]) for child in reversed(others))
            todo.append((first, distance))
    return np.array(distances, dtype=np.int64)


def tree_from_distances(
    words: Sequence[str],
    distances: Sequence[float] | NDArray[np.floating | np.integer],
    *,
    builder: Literal["unbiased", "biased"] = "unbiased",
    label: str = "X",
) -> Tree:
    """The binary tree that splits where the distance is largest, the leftmost of equals first.

    ``unbiased`` splits into ``(words before i) (words from i on)`` and never looks at ``distances[0]``; every binary
    tree can be built. ``biased`` is the builder that was published with PRPN,
    ``(words before i) (word i (words after i))``, which favours right branching (Dyer et al. 2019):
    ``((a b) ((c d) e))`` cannot be built. One word becomes a constituent of one word.

    Raises ``ValueError`` without words, when the lengths differ, for nan and for an unknown builder.
    """
    values = np.asarray(distances, dtype=np.float64)
    if not len(words) or values.shape != (len(words),):
        raise ValueError(f"{len(words)} words and distances of shape {values.shape}: one distance a word is needed")
    if np.isnan(values).any():
        raise ValueError(f"the distance of word {int(np.isnan(values).argmax())} is not a number")
    if builder not in ("unbiased", "biased"):
        raise ValueError(f'builder {builder!r}: choose "unbiased" or "biased"')
    if builder == "unbiased":
        return tree_from_splits(words, lambda start, end: start + 1 + int(values[start + 1 : end].argmax()), label)
    begin_with_split = set[int]()  # the words at which a right part begins

    def split(start: int, end: int) -> int:
        place = start if start in begin_with_split else start + int(values[start:end].argmax())
        if place == start:
            return start + 1
        begin_with_split.add(place)
        return place

    return tree_from_splits(words, split, label)


def tree_from_span_scores(words: Sequence[str], scores: NDArray[np.floating], *, label: str = "X") -> Tree:
    """The binary tree whose constituents split where their right part scores highest, the leftmost of equals first.

    The greedy parser of Eq. 4, Peng, Schwartz & Smith 2019. ``scores[i, j]`` (n, n) is that of words i to j, both
    included. Words i to j split into i to k and k + 1 to j, with k = argmax scores[k + 1, j]. Every binary tree can be
    built: by scores of 1 for its constituents and words and 0 for all other spans. One word becomes a constituent of
    one word.

    Raises ``ValueError`` without words, for scores of another shape, and for nan.
    """
    if not len(words) or scores.shape != (len(words), len(words)):
        raise ValueError(f"{len(words)} words and scores of shape {scores.shape}: one score a span is needed")
    if np.isnan(scores[np.triu_indices(len(words))]).any():
        raise ValueError("the score of a span is not a number")
    return tree_from_splits(words, lambda start, end: start + 1 + int(scores[start + 1 : end, end - 1].argmax()), label)


def tree_from_splits(words: Sequence[str], split: Callable[[int, int], int], label: str = "X") -> Tree:
    """The binary tree that splits the words from start to end (excluded) at ``split(start, end)``, from the top down.

    One word becomes a constituent of one word. Raises ``ValueError`` without words.
    """
    if not words:
        raise ValueError("a tree has words")
    flat: list[str | tuple[str, int]] = [(label, 1)] if len(words) == 1 else []
    todo = [(0, len(words))]
    while todo:
        start, end = todo.pop()
        if end - start == 1:
            flat.append(words[start])
        else:
            flat.append((label, 2))
            middle = split(start, end)
            todo += [(middle, end), (start, middle)]
    return from_flat(flat)
