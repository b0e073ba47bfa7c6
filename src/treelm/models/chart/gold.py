"""Gold trees as a chart has them: the label of every constituent, and the spans that cross none.

A unary chain, constituents over the same words, is one constituent with the labels of all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from treelm.trees.transitions import FIRST_NT, SHIFT, partners

IntArray = NDArray[np.int64]
Chain = tuple[int, ...]  # numbers of labels, from the top


@dataclass(frozen=True, kw_only=True)
class Constituents:
    """The constituents of some sentences, chains taken together: c in all, parents before children."""

    sentence: IntArray  # (c,)
    start: IntArray  # (c,) the first word
    end: IntArray  # (c,) behind the last word
    place: IntArray  # (c,) of the first action of its chain
    height: IntArray  # (c,) labels of its chain


def constituents_of(actions: IntArray, offsets: IntArray, ends_word: NDArray[np.bool_] | None = None) -> Constituents:
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


def chains_of(actions: NDArray[np.integer], offsets: IntArray) -> list[Chain]:
    """The chains of two labels or more in flat top-down actions, one SHIFT a word, each as often as it is there."""
    wide = actions.astype(np.int64)
    found = constituents_of(wide, offsets)
    several = found.height > 1
    return [_chain(wide, *one) for one in zip(found.place[several], found.height[several], strict=True)]


def chain_numbers(found: Constituents, actions: IntArray, chains: Mapping[Chain, int], labels: IntArray) -> IntArray:
    """The number of each constituent's chain: by ``labels`` (num_labels,) of a single label, by ``chains`` of more.

    A chain that is not among them has the number of its top label.
    """
    numbers = labels[actions[found.place] - FIRST_NT]
    for one in np.flatnonzero(found.height > 1).tolist():
        chain = _chain(actions, int(found.place[one]), int(found.height[one]))
        numbers[one] = chains.get(chain, numbers[one])
    return numbers


def _chain(actions: IntArray, place: int, height: int) -> Chain:
    return tuple((actions[place : place + height] - FIRST_NT).tolist())


def crossing(is_gold: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """The spans that cross a gold one: (i, j) crosses (a, b) if i < a < j < b or a < i < b < j; (B, n + 1, n + 1)."""
    posts = np.arange(is_gold.shape[1])
    furthest = np.where(is_gold, posts, -1).max(2)  # (B, n + 1) the last end of what starts at a
    nearest = np.where(is_gold, posts[:, None], len(posts)).min(1)  # (B, n + 1) the first start of what ends at b
    between = posts[:, None] < posts  # (i, j): i < j
    ends = np.maximum.accumulate(np.where(between, furthest[:, None, :], -1), axis=2)  # over a = i + 1 .. j
    begins = np.minimum.accumulate(np.where(between, nearest[:, :, None], len(posts))[:, ::-1], axis=1)[:, ::-1]
    found = np.zeros_like(is_gold)
    found[:, :, 1:] |= ends[:, :, :-1] > posts[1:]  # a < j
    found[:, :-1] |= begins[:, 1:] < posts[:-1, None]  # i < b
    return found & between
