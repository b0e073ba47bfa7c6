"""How deep derivations go: what bounds on open and consecutive nonterminals a sentence needs."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from treelm.trees.transitions import FIRST_NT, REDUCE, SHIFT, Order, top_down_to_in_order


class Bounds(NamedTuple):
    """For every sentence, the most nonterminals that are open at once, and the most that are opened in a row.

    In a row means, top-down, without another action between; in-order, without a SHIFT between.
    """

    max_open: NDArray[np.int16]
    max_consecutive: NDArray[np.int16]


def measure_bounds(
    actions: NDArray[np.integer], offsets: NDArray[np.int64], *, num_labels: int, order: Order
) -> Bounds:
    """Measure flat top-down actions as derivations of the given order; sentences without actions have bounds 0."""
    has_actions = np.diff(offsets) > 0
    starts = offsets[:-1][has_actions]
    if order == "in-order" and len(starts):
        kept = np.concatenate((starts, offsets[-1:]))
        actions, all_offsets = top_down_to_in_order(actions, kept, num_labels)
        starts = all_offsets[:-1]
    opens = (actions >= FIRST_NT) & (actions < FIRST_NT + num_labels)
    num_open = np.cumsum(opens, dtype=np.int64) - np.cumsum(actions == REDUCE, dtype=np.int64)
    # In-order, REDUCE does not end a row: the rule of the model counts nonterminals since the last word.
    breaks = actions == SHIFT if order == "in-order" else ~opens
    num_opened = np.cumsum(opens, dtype=np.int64)
    in_a_row = num_opened - np.maximum.accumulate(np.where(breaks, num_opened, 0))
    return Bounds(_maxima(num_open, starts, has_actions), _maxima(in_a_row, starts, has_actions))


def _maxima(values: NDArray[np.int64], starts: NDArray[np.int64], has_actions: NDArray[np.bool_]) -> NDArray[np.int16]:
    maxima = np.zeros(len(has_actions), dtype=np.int16)
    if len(starts):
        maxima[has_actions] = np.minimum(np.maximum.reduceat(values, starts), np.iinfo(np.int16).max)
    return maxima
