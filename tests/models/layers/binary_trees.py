"""All binary trees of a sentence, listed one by one: the oracle of whatever a chart computes."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import torch
from torch import Tensor

Spans = frozenset[tuple[int, int]]


def binary_trees(start: int, end: int) -> Iterator[Spans]:
    """The spans of each binary tree over the words start .. end - 1, the words' own included."""
    if end - start == 1:
        yield frozenset({(start, end)})
    for middle in range(start + 1, end):
        for left, right in itertools.product(binary_trees(start, middle), binary_trees(middle, end)):
            yield left | right | {(start, end)}


def spans_of_trees(num_words: int) -> Tensor:
    """All trees of a sentence, 1 at the spans of each: float64 (trees, n + 1, n + 1)."""
    trees = list(binary_trees(0, num_words))
    found = torch.zeros(len(trees), num_words + 1, num_words + 1, dtype=torch.float64)
    for number, tree in enumerate(trees):
        for span in tree:
            found[number][span] = 1
    return found
