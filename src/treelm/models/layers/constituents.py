"""The constituents of trees as spans of words, from flat actions and without a loop.

A unary chain, constituents over the same words, is one constituent with the labels of all of them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from treelm.trees.transitions import FIRST_NT, SHIFT, partners

IntArray = NDArray[np.int64]


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
