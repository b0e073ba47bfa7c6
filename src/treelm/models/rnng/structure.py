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

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treelm.corpora.batches import SentenceBatch
from treelm.errors import InputError
from treelm.models.layers.levels import Schedule, earliest_levels, ranges, schedule_levels, starts
from treelm.models.rnng.config import CONSTITUENT, EMPTY, OPEN, WORD, Configuration, RNNGConfig, spread, valid_actions
from treelm.trees.transitions import FIRST_NT, REDUCE, SHIFT

IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True, slots=True)
class LocalTrees:
    """Every nonterminal with its children, as consecutive entries: NT, c_1, ..., c_n, NT, c_1, ...

    Sorting actions by the number of nonterminals that are open after them gives just this order, since an NT(X) and the
    completion of each child of X leave equally many open.
    """

    entries: IntArray  # (M,) the top-down action that opens X (first of a local tree) or completes a child of X
    offsets: IntArray  # (F + 1,) local tree f is entries[offsets[f]:offsets[f + 1]]
    reduce: IntArray  # (F,) the top-down action that closes each local tree

    @property
    def num_children(self) -> IntArray:
        """Children of each local tree: (F,)."""
        return np.diff(self.offsets) - 1


def find_local_trees(actions: IntArray) -> LocalTrees:
    """Match brackets and collect children, from the top-down actions (T,) of whole trees."""
    num_open = np.cumsum(np.where(actions == REDUCE, -1, actions >= FIRST_NT))
    order = np.argsort(num_open, kind="stable")
    entries = order[np.searchsorted(num_open[order], 1) :]  # the roots' own REDUCEs leave none open
    reduces = np.flatnonzero(actions == REDUCE)
    return LocalTrees(
        entries=entries,
        offsets=np.append(np.flatnonzero(actions[entries] >= FIRST_NT), len(entries)),
        reduce=reduces[np.argsort(num_open[reduces], kind="stable")],
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Derivations:
    """The actions of a batch in the model's order, and what the rule of validity looks at before each of them."""

    actions: IntArray  # (T,)
    sentence: IntArray  # (T,) the sentence of each action
    is_start: BoolArray  # (T,) whether it is the first action of its sentence
    position: IntArray  # where each top-down action stands among ``actions``
    local_trees: LocalTrees  # actions by their position
    state: Configuration  # before each action

    @property
    def num_sentences(self) -> int:
        """Sentences in the batch."""
        return int(self.sentence[-1]) + 1


def derive(config: RNNGConfig, batch: SentenceBatch, ends_word: BoolArray, num_labels: int) -> Derivations:
    """Put a batch's trees in the model's order. Raises ``InputError`` for a tree that the model cannot build."""
    if batch.actions is None or batch.action_offsets is None:
        raise InputError("sentence without a tree", where=batch.names[0], remedy="train an RNNG on bracketed trees")
    top_down, lengths = batch.actions, np.diff(batch.action_offsets)
    local_trees = find_local_trees(top_down)
    position = np.arange(len(top_down))
    actions = top_down
    if config.order == "in-order":
        sentence = np.repeat(np.arange(len(lengths)), lengths)
        position = _in_order_rank(local_trees, top_down, ends_word[batch.tokens]) + sentence
        lengths = lengths + 1
        actions = np.full(len(top_down) + len(lengths), FIRST_NT + num_labels)  # FINISH where nothing else is put
        actions[position] = top_down
    sentence = np.repeat(np.arange(len(lengths)), lengths)
    is_start = np.diff(sentence, prepend=-1) > 0
    return Derivations(
        actions=actions,
        sentence=sentence,
        is_start=is_start,
        position=position,
        local_trees=LocalTrees(
            entries=position[local_trees.entries], offsets=local_trees.offsets, reduce=position[local_trees.reduce]
        ),
        state=_configurations(config, actions, is_start, ends_word[batch.tokens], num_labels),
    )


def _in_order_rank(local_trees: LocalTrees, actions: IntArray, ends_word: BoolArray) -> IntArray:
    """The rank of every top-down action in-order: NT(X) comes right after what completes the left corner of X.

    The left corner is the first child or, if that is a token, the first word, which may have several tokens.
    """
    ends = np.flatnonzero(actions == SHIFT)[ends_word]  # the last SHIFT of every word
    first = local_trees.offsets[:-1]
    completes = local_trees.entries[first + 1]
    is_token = actions[completes] == SHIFT
    completes[is_token] = np.append(ends, len(actions))[np.searchsorted(ends, completes[is_token])]
    key = 2 * np.arange(len(actions))
    key[local_trees.entries[first]] = 2 * completes + 1
    rank = np.empty(len(actions), np.int64)
    rank[np.argsort(key, kind="stable")] = np.arange(len(actions))
    return rank


def _configurations(
    config: RNNGConfig, actions: IntArray, is_start: BoolArray, ends_word: BoolArray, num_labels: int
) -> Configuration:
    is_label = (actions >= FIRST_NT) & (actions < FIRST_NT + num_labels)
    is_shift = actions == SHIFT
    open_after = np.cumsum(is_label.astype(np.int64) - (actions == REDUCE))
    interrupts = is_shift if config.order == "in-order" else ~is_label
    labels_after = np.cumsum(is_label)
    # NT actions since the last interruption: what was counted there is subtracted; sentences start afresh.
    counted = np.maximum.accumulate(np.where(interrupts, labels_after, 0))
    before_start = np.maximum.accumulate(np.where(is_start, labels_after - is_label, 0))
    consecutive_after: IntArray = labels_after - np.maximum(counted, before_start)
    top_after = np.where(is_shift, WORD, np.where(is_label, OPEN, CONSTITUENT))
    in_word_after = np.zeros(len(actions), np.bool_)
    in_word_after[is_shift] = ~ends_word
    return Configuration(
        num_open=_before(open_after, is_start, 0),
        num_consecutive=_before(consecutive_after, is_start, 0),
        top=_before(top_after, is_start, EMPTY),
        in_word=_before(in_word_after, is_start, False),
    )


def _before(after: NDArray[Any], is_start: BoolArray, at_start: int | bool) -> NDArray[Any]:
    """Values that held after the previous action of the sentence."""
    return np.where(is_start, at_start, np.roll(after, 1))


def require_valid(config: RNNGConfig, derivations: Derivations, names: Sequence[str], num_labels: int) -> BoolArray:
    """The mask of valid actions in every context (T, num_actions).

    Raises ``InputError`` that names the sentence if an action of a tree is not valid.
    """
    mask = spread(valid_actions(config, derivations.state), config, num_labels)
    is_valid = mask[np.arange(len(mask)), derivations.actions]
    if not is_valid.all():
        raise _invalid_tree(config, derivations, int(np.argmin(is_valid)), names)
    return mask


def _invalid_tree(config: RNNGConfig, derivations: Derivations, context: int, names: Sequence[str]) -> InputError:
    state = derivations.state
    # In-order, what a bracket cuts off from a word gives two nonterminals after the same left corner.
    has_no_corner = config.order == "in-order" and state.top[context] == OPEN
    if state.in_word[context] or has_no_corner:
        found, remedy = "a bracket stands between the tokens of a word", "brackets may only stand around whole words"
    elif derivations.actions[context] < FIRST_NT:
        found, remedy = "the actions build no tree", "prepare the corpus again from bracketed trees"
    elif state.num_open[context] >= config.max_open:
        found = f"more than {config.max_open} open nonterminals"
        remedy = "raise max_open in [model] or leave this tree out"
    else:
        found = f"more than {config.max_consecutive} consecutive nonterminals"
        remedy = "raise max_consecutive in [model] or leave this tree out"
    return InputError(found, where=names[derivations.sentence[context]], remedy=remedy)


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
    return _before(np.cumsum(change), derivations.is_start, 0)


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
