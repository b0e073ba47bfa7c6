"""What the gold trees of a batch are in words: their constituents, the splits of binary ones, distances of words.

Trees come as top-down actions with one SHIFT a token. Places a, b, k are those of tokens in their sentence. A unary
chain, constituents over the same words, is one constituent with the labels of all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from treelm.corpora.batches import SentenceBatch
from treelm.trees.transforms import UNPARSED
from treelm.trees.transitions import FIRST_NT, REDUCE, SHIFT, partners

Ints = NDArray[np.int64]


def binary_splits(actions: Ints, ends_word: NDArray[np.bool_]) -> list[tuple[int, int, int]]:
    """Constituents (a, b, k) of a tree whose parts are a to k and k + 1 to b, all included, in the order of their ends.

    ``ends_word`` (n,) tells the tokens that end words. Constituents of more than two parts branch to the right: the
    first part, and all others. Those of one part have no split.
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
    """(W, W + 1): edges of the tree between a word and START (column 0) or a word (column 1 + its number).

    START is a daughter of the root. ``ends_word`` (n,) tells the tokens that end words.
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
    """A batch whose trees (UNPARSED word ...), which stand for none, are left out: their sentences have no actions."""
    if UNPARSED not in labels or batch.actions is None or batch.action_offsets is None:
        return batch
    counts = np.diff(batch.action_offsets)
    is_tree = counts > 0
    is_tree[is_tree] = batch.actions[batch.action_offsets[:-1][is_tree]] != FIRST_NT + labels.index(UNPARSED)
    actions = batch.actions[np.repeat(is_tree, counts)]
    return replace(batch, actions=actions, action_offsets=np.append(0, np.cumsum(counts * is_tree)))


def trees_of(batch: SentenceBatch, ends_word: NDArray[np.bool_]) -> list[tuple[Ints, NDArray[np.bool_]]]:
    """The actions of each sentence's tree, none without one, and which of its tokens end words, of all (V,) tokens."""
    actions, offsets = batch.trees()
    return [(actions[offsets[row] : offsets[row + 1]], ends_word[batch.tokens_of(row)]) for row in range(len(batch))]


@dataclass(frozen=True, kw_only=True)
class Constituents:
    """The constituents of some sentences, chains taken together: c in all, parents before children."""

    sentence: Ints  # (c,)
    start: Ints  # (c,) the first word
    end: Ints  # (c,) behind the last word
    place: Ints  # (c,) of the first action of its chain
    height: Ints  # (c,) labels of its chain


def constituents_of(actions: Ints, offsets: Ints, ends_word: NDArray[np.bool_] | None = None) -> Constituents:
    """Find constituents in flat top-down actions; ``ends_word`` says of every SHIFT whether it ends a word.

    Raises ``ValueError`` for what is no tree.
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
