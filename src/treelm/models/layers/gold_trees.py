"""The gold trees of a batch as arrays: their constituents, the splits of binary trees, distances between words.

Trees are given as top-down actions with one SHIFT for each token. Places a, b, k are those of tokens in their sentence.
A unary chain, constituents over the same words, counts as one constituent with the labels of all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from treelm.corpora.encoding import SentenceBatch
from treelm.trees.transforms import UNPARSED
from treelm.trees.transitions import FIRST_NT, REDUCE, SHIFT, partners

Ints = NDArray[np.int64]


def binary_splits(actions: Ints, ends_word: NDArray[np.bool_]) -> list[tuple[int, int, int]]:
    """The binary constituents (a, b, k) of a tree, in the order of their ends: they have parts a to k and k + 1 to b.

    The bounds are included. ``ends_word`` (n,) marks the tokens that end words. A constituent of more than two parts
    becomes binary by branching to the right: its first part, and all others. Constituents of one part have no split.
    """
    spans: list[tuple[int, int, int]] = []
    open_ends: list[list[int]] = [[-1]]  # of each open constituent: the place before it, then the last of each part
    num_read = 0
    for action in actions.tolist():
        if action >= FIRST_NT:
            open_ends.append([open_ends[-1][-1]])
        elif action == SHIFT:
            if ends_word[num_read]:
                open_ends[-1].append(num_read)
            num_read += 1
        elif action == REDUCE:
            before, *parts = open_ends.pop()
            for part in parts[:-1]:
                spans.append((before + 1, parts[-1], part))
                before = part
            open_ends[-1].append(parts[-1])
    return spans


def word_distances(actions: Ints, ends_word: NDArray[np.bool_]) -> Ints:
    """The number of edges in the tree from every word to START (column 0) and to every word: (W, W + 1).

    START is a daughter of the root. ``ends_word`` (n,) marks the tokens that end words.
    """
    num_open = np.cumsum((actions >= FIRST_NT).astype(np.int64) - (actions == REDUCE))
    shifts = np.flatnonzero(actions == SHIFT)
    last = shifts[ends_word]
    first = shifts[np.append(True, ends_word[:-1])]
    depth = np.append(2, num_open[first] + 1)  # of leaves, where the root has depth 1
    common = np.array([1] + [num_open[a : b + 1].min() for a, b in zip(last[:-1], first[1:], strict=True)])
    size = len(first) + 1
    lowest = np.zeros((size, size), dtype=np.int64)  # depth of the smallest constituent that holds both
    for left in range(size):
        lowest[left, left] = depth[left]
        lowest[left, left + 1 :] = lowest[left + 1 :, left] = np.minimum.accumulate(common[left:])
    distances: Ints = depth[1:, None] + depth - 2 * lowest[1:]
    return distances


def without_unparsed(batch: SentenceBatch, labels: Sequence[str]) -> SentenceBatch:
    """A batch without the trees (UNPARSED word ...), which stand for no tree: their sentences have no actions."""
    if UNPARSED not in labels or batch.actions is None or batch.action_offsets is None:
        return batch
    counts = np.diff(batch.action_offsets)
    is_tree = counts > 0
    is_tree[is_tree] = batch.actions[batch.action_offsets[:-1][is_tree]] != FIRST_NT + labels.index(UNPARSED)
    actions = batch.actions[np.repeat(is_tree, counts)]
    return replace(batch, actions=actions, action_offsets=np.append(0, np.cumsum(counts * is_tree)))


def trees_of(batch: SentenceBatch, ends_word: NDArray[np.bool_]) -> list[tuple[Ints, NDArray[np.bool_]]]:
    """For each sentence the actions of its tree, empty without one, and which of its tokens end words.

    ``ends_word`` (V,) says that of all tokens of the vocabulary.
    """
    actions, offsets = batch.trees()
    return [(actions[offsets[row] : offsets[row + 1]], ends_word[batch.tokens_of(row)]) for row in range(len(batch))]


@dataclass(frozen=True, kw_only=True)
class Constituents:
    """The c constituents of some sentences, where unary chains are one; parents come before children."""

    sentence: Ints  # (c,)
    start: Ints  # (c,) the first word
    end: Ints  # (c,) the word after the last one
    place: Ints  # (c,) the first action of its chain
    height: Ints  # (c,) the number of labels of its chain


def constituents_of(actions: Ints, offsets: Ints, ends_word: NDArray[np.bool_] | None = None) -> Constituents:
    """The constituents of flat top-down actions, of which those of sentence i are offsets[i]:offsets[i + 1].

    ``ends_word`` says for every SHIFT whether it ends a word. Raises ``ValueError`` for actions that make no trees.
    """
    partner = partners(actions, offsets)
    opens = actions >= FIRST_NT
    follows = np.zeros(len(actions), dtype=np.bool_)  # of an NT: the constituent before it has no other child
    follows[1:] = opens[1:] & opens[:-1] & (partner[1:] + 1 == partner[:-1])
    heads = np.flatnonzero(opens & ~follows)
    places = np.flatnonzero(~follows)  # behind a chain comes something that does not go on with it
    height = places[np.searchsorted(places, heads, side="right")] - heads
    shifts = actions == SHIFT
    words = shifts.astype(np.int64)
    if ends_word is not None:
        words[shifts] = ends_word
    before = np.concatenate([[0], np.cumsum(words)])  # words before each action
    sentence = np.searchsorted(offsets, heads, side="right") - 1
    first = before[offsets[sentence]]
    return Constituents(
        sentence=sentence,
        start=before[heads] - first,
        end=before[partner[heads]] - first,
        place=heads,
        height=height,
    )
