"""Trees as actions: how they become binary, the stacks of their bottom-up derivations, and the bounds that they need.

Trees become binary by branching to the right: (X a b c) is (X a (X b c)). A constituent with one child is replaced by
the child, but a sentence of one word keeps its root. The pieces of a word are one child.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import chain, pairwise, repeat

import numpy as np
from numpy.typing import NDArray

from treelm.corpora.encoding import SentenceBatch
from treelm.models.search.derivations import BoolArray, IntArray, find_local_trees
from treelm.models.search.validity import CONSTITUENT, EMPTY, WORD
from treelm.trees.transitions import FIRST_NT, REDUCE, SHIFT


def binarised(actions: Iterable[int], ends_word: Iterable[bool]) -> list[int]:
    """The top-down actions of the binary tree of a tree; ``ends_word`` says for each SHIFT whether it ends a word.

    >>> X = FIRST_NT
    >>> binarised([X, SHIFT, SHIFT, SHIFT, REDUCE], [True, True, True]) == [X, SHIFT, X, SHIFT, SHIFT, REDUCE, REDUCE]
    True
    """
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


def binarised_trees(
    actions: IntArray, offsets: IntArray, ends_word: Iterable[bool] = repeat(True)
) -> tuple[IntArray, IntArray]:
    """The top-down actions, and their offsets, of the binary trees of some trees.

    ``ends_word`` (W,) marks the tokens that end words; by default all do.
    """
    coming = iter(ends_word)
    trees = [binarised(actions[start:end].tolist(), coming) for start, end in pairwise(offsets.tolist())]
    return np.fromiter(chain.from_iterable(trees), np.int64), np.cumsum([0, *map(len, trees)], dtype=np.int64)


def binarised_batch(batch: SentenceBatch, ends_word: NDArray[np.bool_]) -> SentenceBatch:
    """A batch with the binary trees of its trees, if it has any. ``ends_word`` (V,) is that of the vocabulary."""
    if batch.actions is None or batch.action_offsets is None:
        return batch
    actions, offsets = binarised_trees(batch.actions, batch.action_offsets, ends_word[batch.tokens].tolist())
    return replace(batch, actions=actions, action_offsets=offsets)


def top_down_bounds(actions: NDArray[np.int64], offsets: NDArray[np.int64]) -> dict[str, NDArray[np.int16]]:
    """The most open and the most consecutive nonterminals of every tree: (trees,) each."""
    opens = actions >= FIRST_NT
    num_open = np.cumsum(opens - (actions == REDUCE).astype(np.int64))
    number = np.arange(len(actions))
    in_a_row = number - np.maximum.accumulate(np.where(opens, -1, number))
    begins = offsets[:-1]
    most = {"max_open": num_open, "max_consecutive": in_a_row}
    return {name: np.maximum.reduceat(values, begins).astype(np.int16) for name, values in most.items()}


NONE = -1


@dataclass(frozen=True, slots=True)
class Stack:
    """What the rule of bottom-up derivations depends on, for n stacks: arrays (n,)."""

    num_items: IntArray  # number of words and constituents; a word counts from its first piece on
    top: IntArray  # EMPTY, WORD or CONSTITUENT
    num_unary: IntArray  # number of constituents of one item, one around the other, that the item on top consists of
    in_word: BoolArray  # whether the last token does not end its word

    def take(self, rows: IntArray) -> Stack:
        """The stacks ``rows``."""
        return Stack(self.num_items[rows], self.top[rows], self.num_unary[rows], self.in_word[rows])


def stacks_of(
    given: IntArray, reach: IntArray, begins_item: BoolArray, ends_item: BoolArray, sources: IntArray
) -> Stack:
    """The stack before each bottom-up action (A,); FINISH empties it.

    ``sources`` (A,) are the top-down actions to which these correspond, -1 for FINISH. The other arrays say of every
    top-down action ``given`` how many items it takes, and whether it begins or ends an item.
    """
    is_finish = sources == NONE
    is_shift = (given[sources] == SHIFT) & ~is_finish
    taken = np.where(is_finish, 1, reach[sources])
    is_unary = ~is_finish & ~is_shift & (taken == 1)
    number = np.arange(len(sources))
    after = Stack(
        num_items=np.cumsum((begins_item[sources] & ~is_finish) - taken),
        top=np.where(is_finish, EMPTY, np.where(is_shift, WORD, CONSTITUENT)),
        num_unary=number - np.maximum.accumulate(np.where(is_unary, -1, number)),
        in_word=is_shift & ~ends_item[sources],
    )
    before = after.take(np.arange(-1, len(sources) - 1))
    for column in (before.num_items, before.top, before.num_unary, before.in_word):
        column[0] = 0  # EMPTY
    return before


def bottom_up_bounds(actions: IntArray, offsets: IntArray) -> dict[str, NDArray[np.int16]]:
    """The most items on the stack, and the most constituents of one item around each other, of trees of whole words."""
    trees = find_local_trees(actions)
    reach = np.zeros(len(actions), np.int64)
    reach[trees.reduce] = trees.num_children
    sources, is_item = np.flatnonzero(actions < FIRST_NT), actions < FIRST_NT
    after = stacks_of(actions, reach, is_item, is_item, np.append(sources, NONE))
    sentence = np.searchsorted(offsets, sources, "right") - 1
    most = {name: np.zeros(len(offsets) - 1, np.int16) for name in ("max_stack", "max_unary")}
    # Every tree before leaves its root on the stack.
    for bound, values in zip(most.values(), (after.num_items[1:] - sentence, after.num_unary[1:]), strict=True):
        np.maximum.at(bound, sentence, values.astype(np.int16))
    return most
