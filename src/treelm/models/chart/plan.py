"""Gold trees as charts: the label of every constituent, and the spans that cross no constituent.

A unary chain, constituents over the same words, is one constituent with the labels of all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from treelm.models.layers.gold_trees import Constituents, constituents_of
from treelm.models.layers.span_scores import flat
from treelm.trees.transitions import FIRST_NT

IntArray = NDArray[np.int64]
Chain = tuple[int, ...]  # numbers of labels, from the top


def chains_of(actions: NDArray[np.integer], offsets: IntArray) -> list[Chain]:
    """All chains of two labels or more in flat top-down actions, with one SHIFT for each word; repeated ones too."""
    wide = actions.astype(np.int64)
    found = constituents_of(wide, offsets)
    several = found.height > 1
    return [_chain(wide, *one) for one in zip(found.place[several], found.height[several], strict=True)]


def chain_numbers(found: Constituents, actions: IntArray, chains: Mapping[Chain, int], labels: IntArray) -> IntArray:
    """The number of each constituent's chain: from ``labels`` (num_labels,) for a single label, else from ``chains``.

    A chain that is not among ``chains`` has the number of its top label.
    """
    numbers = labels[actions[found.place] - FIRST_NT]
    for one in np.flatnonzero(found.height > 1).tolist():
        chain = _chain(actions, int(found.place[one]), int(found.height[one]))
        numbers[one] = chains.get(chain, numbers[one])
    return numbers


def _chain(actions: IntArray, place: int, height: int) -> Chain:
    return tuple((actions[place : place + height] - FIRST_NT).tolist())


def crossing(is_gold: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Mark the spans that cross a gold span: (i, j) crosses (a, b) if i < a < j < b or a < i < b < j.

    Both are (B, n + 1, n + 1).
    """
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


class GoldSpans(NamedTuple):
    """Gold trees of B sentences of one length, by spans in the order of ``spans_of``."""

    chains: Tensor  # (B, spans) the number of a constituent's chain; -1 for other spans
    allowed: Tensor  # (B, spans) bool, whether a span crosses no constituent


def gold_spans(table: IntArray) -> GoldSpans:
    """Gold trees of one length, from a table (B, n + 1, n + 1) of the chains of constituents, -1 elsewhere."""
    return GoldSpans(flat(torch.from_numpy(table)), flat(torch.from_numpy(~crossing(table >= 0))))


def label_table(found: Constituents, numbers: IntArray, rows: IntArray, num_words: int) -> IntArray:
    """The numbers of the constituents' chains of the sentences ``rows``, -1 elsewhere: (B, n + 1, n + 1)."""
    table = np.full((len(rows), num_words + 1, num_words + 1), -1, dtype=np.int64)
    own = np.isin(found.sentence, rows)
    row = np.searchsorted(rows, found.sentence[own])
    table[row, found.start[own], found.end[own]] = numbers[own]
    return table
