"""Bottom-up derivations: their actions, which of them are valid, and what a REDUCE may reach.

SHIFT pushes a token. REDUCE(X) makes a constituent of the topmost items of the stack, words and constituents: of two in
binary trees, else of as many as a pointer to its first child says, which is the action REACH in a search. FINISH ends
the sentence when the stack is one constituent. After a piece that does not end its word only SHIFT is valid. For
example, (S (NP the dog) barks)::

    action      SHIFT  SHIFT    REDUCE(NP)  SHIFT        REDUCE(S)  FINISH
    stack after the    the dog  [NP]        [NP] barks   [S]
    reaches                     2 items                  2 items

The bounds are part of the model: without ``max_stack`` a model that prefers SHIFT would never end. In binary trees only
a sentence of one word has a constituent of one item, after which only FINISH is valid.

Shapes: A actions and R REDUCEs of B sentences, C actions of the longest sentence, L labels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from treelm.errors import InputError
from treelm.models.layers.packed_sequences import Packing
from treelm.models.search.derivations import BoolArray, Derivations, IntArray
from treelm.models.search.validity import CONSTITUENT, WORD
from treelm.models.transformer_grammar.config import TransformerGrammarConfig
from treelm.models.transformer_grammar.trees import NONE, Stack, stacks_of
from treelm.trees.transitions import FIRST_NT, REDUCE, SHIFT
from treelm.trees.tree import Tree

FIRST_REDUCE = 1
"""The number of REDUCE of the first label; FINISH comes after the last one, in the softmax over actions."""


def valid_bottom_up(config: TransformerGrammarConfig, stack: Stack, num_labels: int) -> BoolArray:
    """The rule, as a mask over SHIFT, REDUCE of each label and FINISH, for n stacks: (n, L + 2)."""
    is_constituent, free = stack.top == CONSTITUENT, ~stack.in_word
    shift = stack.num_items < config.max_stack
    if config.binary:
        shift &= ~(is_constituent & (stack.num_unary > 0))
    mask: BoolArray = np.empty((len(shift), FIRST_REDUCE + num_labels + 1), np.bool_)
    mask[:, SHIFT] = shift | stack.in_word
    mask[:, FIRST_REDUCE:-1] = (free & ((stack.num_items >= 2) | may_be_unary(config, stack)))[:, None]
    mask[:, -1] = free & is_constituent & (stack.num_items == 1)
    return mask


def may_be_unary(config: TransformerGrammarConfig, stack: Stack) -> BoolArray:
    """Whether the item on top may become a constituent by itself: (n,)."""
    found: BoolArray
    if config.binary:
        found = (stack.num_items == 1) & (stack.top == WORD)
    else:
        found = (stack.num_items >= 1) & (stack.num_unary < config.max_unary)
    return found


@dataclass(frozen=True, kw_only=True, slots=True)
class ReachPlan:
    """What the R REDUCEs of a batch reach, as contexts of their sentences.

    A context is the state before an action, so a sentence has as many as actions, and the longest has C. An item of the
    stack is represented by the context after the action that completed it.
    """

    packing: Packing  # of the contexts of all sentences
    contexts: Tensor  # (R,) the context before each REDUCE, among all A
    places: Tensor  # (R,) the same among the B C padded ones
    labels: Tensor  # (R,) its label
    valid: Tensor  # (R, C) the contexts of items that may be its first child
    target: Tensor  # (R,) the context of its first child


@dataclass(frozen=True, kw_only=True, slots=True)
class BottomUp:
    """The bottom-up derivations of a batch, whose actions are SHIFT, REDUCE of each label and FINISH."""

    actions: IntArray  # (A,)
    sentence: IntArray  # (A,) the sentence of each action
    sources: IntArray  # (A,) the top-down action to which each corresponds, -1 for FINISH
    valid: BoolArray  # (A, L + 2) which actions are valid before each
    reaches: ReachPlan | None  # None for binary trees


def derive_bottom_up(
    config: TransformerGrammarConfig, top_down: Derivations, ends: BoolArray, names: Sequence[str], num_labels: int
) -> BottomUp:
    """The bottom-up derivations of a batch, from its top-down ones; ``ends`` (W,) marks tokens that end words.

    Raises ``InputError`` that names the sentence if an action of a tree is not valid.
    """
    given, trees = top_down.actions, top_down.local_trees
    kept = np.flatnonzero(given < FIRST_NT)
    place = np.arange(len(kept)) + top_down.sentence[kept]  # each sentence has a FINISH more
    lengths = np.bincount(top_down.sentence[kept]) + 1
    sentence = np.repeat(np.arange(len(lengths)), lengths)
    sources = np.full(len(sentence), NONE)
    sources[place] = kept
    labels = np.zeros(len(given), np.int64)
    labels[trees.reduce] = given[trees.entries[trees.offsets[:-1]]] - FIRST_NT
    actions = np.full(len(sentence), FIRST_REDUCE + num_labels)
    actions[place] = np.where(given[kept] == SHIFT, SHIFT, FIRST_REDUCE + labels[kept])

    begins_item, ends_item, last_piece = _items(given, ends)
    children = begins_item[trees.entries].astype(np.int64)
    children[trees.offsets[:-1]] = 0
    reach = np.zeros(len(given), np.int64)
    reach[trees.reduce] = np.add.reduceat(children, trees.offsets[:-1])
    stack = stacks_of(given, reach, begins_item, ends_item, sources)
    valid = valid_bottom_up(config, stack, num_labels)
    reduces = np.flatnonzero((actions != SHIFT) & (sources != NONE))
    before = stack.take(reduces)
    keeps = valid[np.arange(len(actions)), actions].copy()
    keeps[reduces] &= (reach[sources[reduces]] > 1) | may_be_unary(config, before)
    if not keeps.all():
        raise _invalid_tree(config, stack, actions, int(np.argmin(keeps)), names[sentence[np.argmin(keeps)]])

    if not config.has_reach:
        return BottomUp(actions=actions, sentence=sentence, sources=sources, valid=valid, reaches=None)
    rank = np.zeros(len(given), np.int64)  # of each action in its sentence, which is the context before it
    rank[kept] = place - (np.cumsum(lengths) - lengths)[top_down.sentence[kept]]
    taken = np.full(len(given), NONE)  # the rank of the REDUCE that takes each item
    taken[trees.entries] = np.repeat(rank[trees.reduce], np.diff(trees.offsets))
    taken_at = np.full((len(lengths), int(lengths.max())), NONE)  # by contexts
    items = np.flatnonzero(ends_item)
    taken_at[top_down.sentence[items], rank[items] + 1] = taken[items]
    own = rank[sources[reduces]][:, None]
    context = np.arange(taken_at.shape[1])
    may_reach = (context <= own) & (taken_at[sentence[reduces]] >= own)
    may_reach[np.arange(len(reduces)), own[:, 0]] &= may_be_unary(config, before)
    first = np.zeros(len(given), np.int64)
    first[trees.reduce] = last_piece[trees.entries[trees.offsets[:-1] + 1]]
    packing, contexts = Packing.of(lengths), torch.from_numpy(reduces)
    reaches = ReachPlan(
        packing=packing,
        contexts=contexts,
        places=packing.places.index_select(0, contexts),
        labels=torch.from_numpy(labels[sources[reduces]]),
        valid=torch.from_numpy(may_reach),
        target=torch.from_numpy(rank[first[sources[reduces]]] + 1),
    )
    return BottomUp(actions=actions, sentence=sentence, sources=sources, valid=valid, reaches=reaches)


def _items(given: IntArray, ends: BoolArray) -> tuple[BoolArray, BoolArray, IntArray]:
    """For each top-down action (T,): whether it begins an item of the stack, whether it completes one; its last piece.

    The last piece of a token is the one that completes its word; that of another action is the action itself.
    """
    shifts, last_piece = np.flatnonzero(given == SHIFT), np.arange(len(given))
    begins_item, ends_item = given == REDUCE, given == REDUCE
    begins_item[shifts], ends_item[shifts] = np.append(True, ends[:-1]), ends
    of_words = shifts[ends]
    last_piece[shifts] = np.append(of_words, len(given) - 1)[np.searchsorted(of_words, shifts)]
    return begins_item, ends_item, last_piece


def _invalid_tree(
    config: TransformerGrammarConfig, stack: Stack, actions: IntArray, place: int, where: str
) -> InputError:
    if stack.in_word[place]:
        found, remedy = "a bracket stands between the tokens of a word", "brackets may only stand around whole words"
    elif actions[place] == SHIFT:
        found = f"more than {config.max_stack} items on the stack"
        remedy = "raise max_stack in [model] or leave this tree out"
    else:
        found = f"more than {config.max_unary} constituents of one item around each other"
        remedy = "raise max_unary in [model] or leave this tree out"
    return InputError(found, where=where, remedy=remedy)


def items_on_stack(
    actions: Sequence[int], ends_word: BoolArray, words: Sequence[str], labels: Sequence[str], *, max_reach: int
) -> list[Tree | str]:
    """The items on the stack after these actions of a search: SHIFT, REDUCE of each label, REACH, FINISH.

    REACH may take ``max_reach`` items; it is 0 for binary trees, which have no REACH.
    """
    stack, coming, ends, label = list[Tree | str](), iter(words), iter(ends_word.tolist()), ""
    for action in actions:
        if action == SHIFT:
            stack += [next(coming)] if next(ends) else []
            continue
        reach = action - FIRST_REDUCE - len(labels) + 1
        if reach < 1:
            label, reach = labels[action - FIRST_REDUCE], 0 if max_reach else min(2, len(stack))
        elif reach > max_reach:
            reach = 0  # FINISH
        if reach:
            stack[-reach:] = [Tree(label, stack[-reach:])]
    return stack
