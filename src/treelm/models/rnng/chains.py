"""The schedule of composition: bidirectional LSTMs over all families of a batch at once.

Each family is read twice, as two chains of steps. A step waits for the step before it and, if its input is a composed
constituent, for the last steps of that constituent's chains; it is computed at the earliest level at which these are
done. A constituent is composed in the level of the later of its two last steps.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from treelm.models.layers.levels import Schedule, earliest_levels, ranges, schedule_levels, starts
from treelm.models.rnng.structure import Families

IntArray = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True, slots=True)
class Chains:
    """Steps of composition, M entries and so 2M steps: entry i is read by step i forward and by step M + i backward.

    All arrays but ``entries`` hold positions in the schedules, not numbers of steps or families.
    """

    entries: IntArray  # (M,) the action whose item is the input of an entry
    steps: Schedule  # of steps; in a level, forward steps come first
    num_forward: IntArray  # (levels,) forward steps of each level
    previous: IntArray  # (2M,) in schedule order: the step before, 0 for the first of a chain
    families: Schedule  # of families, by the level in which they are composed
    reduce: IntArray  # (F,) in schedule order: the action that closes the family
    last_forward: IntArray  # (F,) in schedule order: the last forward step
    last_backward: IntArray  # (F,) in schedule order: the last backward step


def chain_families(families: Families, num_actions: int) -> Chains:
    """Schedule the chains NT, c_1, ..., c_n and NT, c_n, ..., c_1 of every family."""
    num_entries = len(families.entries)
    first, end = families.offsets[:-1], families.offsets[1:]
    previous = _previous_steps(families)
    last_forward, last_backward = end - 1, num_entries + first + 1
    family_of_action = np.full(num_actions, -1)
    family_of_action[families.reduce] = np.arange(len(first))
    child = np.tile(family_of_action[families.entries], 2)
    awaited = np.where(child[:, None] >= 0, np.stack([last_forward, last_backward], 1)[child], -1)
    levels = earliest_levels(np.column_stack([previous, awaited]))
    steps = schedule_levels(levels)
    composed = schedule_levels(np.maximum(levels[last_forward], levels[last_backward]))
    return Chains(
        entries=families.entries,
        steps=steps,
        num_forward=np.bincount(levels[:num_entries], minlength=steps.num_levels),
        previous=np.where(previous >= 0, steps.position[previous], 0)[steps.order],
        families=composed,
        reduce=families.reduce[composed.order],
        last_forward=steps.position[last_forward][composed.order],
        last_backward=steps.position[last_backward][composed.order],
    )


def _previous_steps(families: Families) -> IntArray:
    """The step before each step, -1 for the two that read the nonterminal itself: (2M,)."""
    num_entries = len(families.entries)
    first, last = families.offsets[:-1], families.offsets[1:] - 1
    forward = np.arange(num_entries) - 1
    forward[first] = -1
    backward = num_entries + np.arange(num_entries) + 1
    backward[last] = num_entries + first
    backward[first] = -1
    return np.concatenate([forward, backward])


def select_families(families: Families, is_kept: NDArray[np.bool_]) -> Families:
    """Only those families (F,) that are kept, in their order."""
    sizes = np.diff(families.offsets)[is_kept]
    return Families(
        entries=families.entries[ranges(families.offsets[:-1][is_kept], sizes)],
        offsets=starts(sizes),
        reduce=families.reduce[is_kept],
    )
