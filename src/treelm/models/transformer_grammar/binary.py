"""Trees made binary: a constituent has two children, but for the only word of a sentence.

To the right: (X a b c) is (X a (X b c)). Of a constituent with one child, the child is left, but a sentence of one word
keeps its root. The pieces of a word are one child.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import pairwise, repeat

import numpy as np
from numpy.typing import NDArray

from treelm.corpora.batches import SentenceBatch
from treelm.trees.transitions import FIRST_NT, REDUCE, SHIFT


def binarised(actions: Iterable[int], ends_word: Iterable[bool]) -> list[int]:
    """Top-down actions of the binary tree of a tree; ``ends_word`` says of each SHIFT whether it ends its word."""
    coming, labels, parts = iter(ends_word), list[int](), list[list[list[int]]]([[]])
    word = list[int]()
    for action in actions:
        if action >= FIRST_NT:
            labels.append(action)
            parts.append([])
        elif action == SHIFT:
            word.append(action)
            if next(coming):
                parts[-1].append(word)
                word = []
        else:
            label, (*first, last) = labels.pop(), parts.pop()
            if not labels and not first and last[0] == SHIFT:
                last = [label, *last, REDUCE]
            for part in reversed(first):
                last = [label, *part, *last, REDUCE]
            parts[-1].append(last)
    return parts[0][0]


def binarised_batch(batch: SentenceBatch, ends_word: NDArray[np.bool_]) -> SentenceBatch:
    """A batch with the binary trees of its trees; without trees, as it is. ``ends_word`` (V,) is the vocabulary's."""
    if batch.actions is None or batch.action_offsets is None:
        return batch
    ends, tokens = ends_word[batch.tokens].tolist(), batch.token_offsets.tolist()
    given = _rows(batch.actions, batch.action_offsets)
    trees = [binarised(row, ends[start:end]) for row, start, end in zip(given, tokens[:-1], tokens[1:], strict=True)]
    actions, offsets = _flat(trees)
    return replace(batch, actions=actions, action_offsets=offsets)


def binarised_part(
    actions: NDArray[np.int64], offsets: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Top-down actions and offsets of the binary trees of some trees over whole words."""
    return _flat([binarised(row, repeat(True)) for row in _rows(actions, offsets)])


def _flat(trees: list[list[int]]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    actions = np.fromiter((action for tree in trees for action in tree), np.int64)
    return actions, np.cumsum([0, *map(len, trees)], dtype=np.int64)


def _rows(actions: NDArray[np.integer], offsets: NDArray[np.integer]) -> Iterator[list[int]]:
    return (actions[start:end].tolist() for start, end in pairwise(offsets.tolist()))


def needed_bounds(actions: NDArray[np.int64], offsets: NDArray[np.int64]) -> dict[str, NDArray[np.int16]]:
    """The open and the consecutive nonterminals of every tree."""
    opens = actions >= FIRST_NT
    num_open = np.cumsum(opens - (actions == REDUCE).astype(np.int64))
    number = np.arange(len(actions))
    in_a_row = number - np.maximum.accumulate(np.where(opens, -1, number))
    begins = offsets[:-1]
    most = {"max_open": num_open, "max_consecutive": in_a_row}
    return {name: np.maximum.reduceat(values, begins).astype(np.int16) for name, values in most.items()}
