"""Structure that the actions of a batch determine, before any number of the network is known.

Everything here is found for the whole batch at once, by sorting and cumulative sums over the flat arrays: there is no
loop over sentences or actions. Three terms:

* Context c is the stack before action c. It starts a sentence, or follows the push of action c - 1, so contexts are
  numbered like actions (T in all), and "the item of context c" is what action c - 1 has pushed.
* A local tree is a nonterminal with its children, left to right.
* A vector is what an item carries: the initial vector of a sentence, a word, a label, or a composed constituent.
  Vectors are stored in this order.

LSTM composition reads each local tree twice, as two chains of steps: the nonterminal, then the children from either
side. What a chain makes of its nonterminal waits for nothing and is no step here. A step reads a child; it waits for
the step before it and, if the child is a composed constituent, for the last steps of that constituent's chains; it is
computed at the earliest level at which these are done. A constituent is composed in the level of the later of its two
last steps.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from treelm.models.layers.levels import Schedule, earliest_levels, ranges, schedule_levels, starts
from treelm.models.search.derivations import Derivations, LocalTrees, before
from treelm.trees.transitions import REDUCE

IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True, slots=True)
class StackSchedule:
    """Places of every context's top item: the schedule of the stack LSTM, whose level is the height of the stack."""

    schedule: Schedule  # of contexts; level 0 holds the starts, in order of sentences
    below: IntArray  # (T - B,) for contexts of level 1 and more, in schedule order: position of the context right below


def stack_contexts(derivations: Derivations, *, composes: bool) -> StackSchedule:
    """Find what lies right below every item.

    The item below an item of height k is the last item of height k - 1 before it. Without composition nothing is ever
    popped, and the height is the number of actions so far.
    """
    height = _heights(derivations) if composes else _steps(derivations)
    contexts = schedule_levels(height)
    num_contexts = len(height)
    key = (height * num_contexts + np.arange(num_contexts))[contexts.order]
    below = np.searchsorted(key, key[derivations.num_sentences :] - num_contexts) - 1
    return StackSchedule(schedule=contexts, below=below)


def _heights(derivations: Derivations) -> IntArray:
    """Items on the stack in every context, the initial one not counted: (T,)."""
    change = np.ones(len(derivations.actions), np.int64)
    change[derivations.local_trees.reduce] = -derivations.local_trees.num_children
    is_last = np.roll(derivations.is_start, -1)
    is_reduce = derivations.actions == REDUCE
    change[is_last] = np.where(is_reduce[is_last], change[is_last], 0) - 1  # the end empties the stack
    return before(np.cumsum(change), derivations.is_start, 0)


def _steps(derivations: Derivations) -> IntArray:
    """Actions of the sentence before every context: (T,)."""
    first = np.flatnonzero(derivations.is_start)
    return np.arange(len(derivations.actions)) - first[derivations.sentence]


@dataclass(frozen=True, kw_only=True, slots=True)
class Direction:
    """The steps of one direction: M, one for each child. They stand in schedule order, in a level first steps first."""

    inputs: IntArray  # (M,) the action whose item a step reads
    previous: IntArray  # (M,) the step before it or, for the first step of a chain, its local tree's number
    offsets: IntArray  # (2 levels + 1,) of the first steps of level 0, its other steps, the first steps of level 1 ...
    last: IntArray  # (F,) the last step of each local tree, local trees in schedule order


@dataclass(frozen=True, kw_only=True, slots=True)
class Chains:
    """The steps of both directions, and the level at which each local tree is composed."""

    forward: Direction
    backward: Direction
    local_trees: IntArray  # (F,) their numbers, in schedule order
    offsets: IntArray  # (levels + 1,) of the local trees


def chain_local_trees(local_trees: LocalTrees, num_actions: int) -> Chains:
    """Schedule the chains NT, c_1, ..., c_n and NT, c_n, ..., c_1 of every local tree."""
    num_entries = len(local_trees.entries)
    first, end = local_trees.offsets[:-1], local_trees.offsets[1:]
    previous_forward, previous_backward = _previous_steps(local_trees)
    # Numbers for scheduling: entry i is read by step i forward and by step (number of entries) + i backward.
    tree_of_action = np.full(num_actions, -1)
    tree_of_action[local_trees.reduce] = np.arange(len(first))
    child = tree_of_action[local_trees.entries]
    awaited = np.where(child[:, None] >= 0, np.stack([end - 1, num_entries + first + 1], 1)[child], -1)
    shifted = np.where(previous_backward >= 0, previous_backward + num_entries, -1)
    waits_for = np.column_stack([np.concatenate([previous_forward, shifted]), np.tile(awaited, (2, 1))])
    levels = earliest_levels(waits_for) - 1  # nonterminals, which wait for nothing, are none
    forward, backward = levels[:num_entries], levels[num_entries:]
    composed = schedule_levels(np.maximum(forward[end - 1], backward[first + 1]))
    order, num_levels = composed.order, composed.num_levels
    return Chains(
        forward=_direct(local_trees, forward, previous_forward, (end - 1)[order], num_levels),
        backward=_direct(local_trees, backward, previous_backward, (first + 1)[order], num_levels),
        local_trees=order,
        offsets=composed.offsets,
    )


def _direct(
    local_trees: LocalTrees, levels: IntArray, previous: IntArray, last: IntArray, num_levels: int
) -> Direction:
    children = np.flatnonzero(levels >= 0)
    is_first = levels[previous[children]] < 0
    group = 2 * levels[children] + ~is_first
    steps: Schedule = schedule_levels(group)
    step_of_entry = np.zeros_like(levels)
    step_of_entry[children] = steps.position
    local_tree = np.searchsorted(local_trees.offsets, children, "right") - 1
    return Direction(
        inputs=local_trees.entries[children][steps.order],
        previous=np.where(is_first, local_tree, step_of_entry[previous[children]])[steps.order],
        offsets=starts(np.bincount(group, minlength=2 * num_levels)),
        last=step_of_entry[last],
    )


def _previous_steps(local_trees: LocalTrees) -> tuple[IntArray, IntArray]:
    """The entry read before each entry, forward and backward, -1 for nonterminals, which are read first: (M + F,)."""
    entries = np.arange(len(local_trees.entries))
    first, last = local_trees.offsets[:-1], local_trees.offsets[1:] - 1
    forward, backward = entries - 1, entries + 1
    backward[last] = first
    forward[first] = backward[first] = -1
    return forward, backward


def select_local_trees(local_trees: LocalTrees, is_kept: NDArray[np.bool_]) -> LocalTrees:
    """Keep some local trees (F,), in their order."""
    sizes = np.diff(local_trees.offsets)[is_kept]
    return LocalTrees(
        entries=local_trees.entries[ranges(local_trees.offsets[:-1][is_kept], sizes)],
        offsets=starts(sizes),
        reduce=local_trees.reduce[is_kept],
    )
