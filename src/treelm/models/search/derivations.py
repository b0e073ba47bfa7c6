"""The derivations of a batch: its trees in the order of the model's actions, and what is valid before each of them.

Everything is computed by sorting and by cumulative sums over flat arrays of all sentences, without loops over sentences
or actions. A local tree is a nonterminal with its children, left to right.

For example, (S (NP the dog) barks) has the top-down actions ::

    number   0      1       2      3      4       5      6
    action   NT(S)  NT(NP)  SHIFT  SHIFT  REDUCE  SHIFT  REDUCE

and two local trees: the entries 0, 4, 5 (S, NP, barks), closed by action 6, and 1, 2, 3 (NP, the, dog), closed by 4.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treelm.corpora.encoding import SentenceBatch
from treelm.errors import InputError
from treelm.models.search.validity import CONSTITUENT, EMPTY, OPEN, WORD, Bounds, Configuration, valid_actions
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


def derive(bounds: Bounds, batch: SentenceBatch, ends_word: BoolArray, num_labels: int) -> Derivations:
    """The derivations of a batch's trees, with actions in the order of the model.

    ``ends_word`` (V,) marks the tokens that end words. Raises ``InputError`` for a tree that the model cannot build.
    """
    top_down, offsets = batch.trees()
    lengths = np.diff(offsets)
    local_trees = find_local_trees(top_down)
    position = np.arange(len(top_down))
    actions = top_down
    if bounds.order == "in-order":
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
        state=_configurations(bounds, actions, is_start, ends_word[batch.tokens], num_labels, local_trees),
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
    bounds: Bounds,
    actions: IntArray,
    is_start: BoolArray,
    ends_word: BoolArray,
    num_labels: int,
    local_trees: LocalTrees,
) -> Configuration:
    is_label = (actions >= FIRST_NT) & (actions < FIRST_NT + num_labels)
    is_shift = actions == SHIFT
    open_after = np.cumsum(is_label.astype(np.int64) - (actions == REDUCE))
    interrupts = is_shift if bounds.order == "in-order" else ~is_label
    labels_after = np.cumsum(is_label)
    # NT actions since the last interruption: what was counted there is subtracted; sentences start afresh.
    counted = np.maximum.accumulate(np.where(interrupts, labels_after, 0))
    before_start = np.maximum.accumulate(np.where(is_start, labels_after - is_label, 0))
    consecutive_after: IntArray = labels_after - np.maximum(counted, before_start)
    top_after = np.where(is_shift, WORD, np.where(is_label, OPEN, CONSTITUENT))
    in_word_after = np.zeros(len(actions), np.bool_)
    in_word_after[is_shift] = ~ends_word
    return Configuration(
        num_open=before(open_after, is_start, 0),
        num_consecutive=before(consecutive_after, is_start, 0),
        top=before(top_after, is_start, EMPTY),
        in_word=before(in_word_after, is_start, False),
        only_child=before(_only_children(local_trees, actions, ends_word), is_start, False)
        if bounds.is_binary
        else None,
    )


def _only_children(local_trees: LocalTrees, actions: IntArray, ends_word: BoolArray) -> BoolArray:
    """Which top-down actions complete a first child: (T,)."""
    behind_label = np.append(False, actions[:-1] >= FIRST_NT)
    shifts = np.flatnonzero(actions == SHIFT)
    starts_word = np.append(True, ends_word[:-1])
    found = np.zeros(len(actions), np.bool_)
    found[shifts] = ends_word & behind_label[shifts[starts_word]][np.cumsum(starts_word) - 1]
    found[local_trees.reduce] = behind_label[local_trees.entries[local_trees.offsets[:-1]]]
    return found


def before(after: NDArray[Any], is_start: BoolArray, at_start: int | bool) -> NDArray[Any]:
    """Values before each action (T,), from those after each action (T,)."""
    return np.where(is_start, at_start, np.roll(after, 1))


def require_valid(bounds: Bounds, derivations: Derivations, names: Sequence[str], num_labels: int) -> BoolArray:
    """The mask of valid actions in every context (T, num_actions).

    Raises ``InputError`` that names the sentence if an action of a tree is not valid.
    """
    mask = valid_actions(bounds, derivations.state, num_labels)
    is_valid = mask[np.arange(len(mask)), derivations.actions]
    if not is_valid.all():
        raise _invalid_tree(bounds, derivations, int(np.argmin(is_valid)), names)
    return mask


def _invalid_tree(bounds: Bounds, derivations: Derivations, context: int, names: Sequence[str]) -> InputError:
    state = derivations.state
    # In-order, what a bracket cuts off from a word gives two nonterminals after the same left corner.
    has_no_corner = bounds.order == "in-order" and state.top[context] == OPEN
    if state.in_word[context] or has_no_corner:
        found, remedy = "a bracket stands between the tokens of a word", "brackets may only stand around whole words"
    elif derivations.actions[context] < FIRST_NT:
        found, remedy = "the actions build no tree", "prepare the corpus again from bracketed trees"
    elif state.num_open[context] >= bounds.max_open:
        found = f"more than {bounds.max_open} open nonterminals"
        remedy = "raise max_open in [model] or leave this tree out"
    else:
        found = f"more than {bounds.max_consecutive} consecutive nonterminals"
        remedy = "raise max_consecutive in [model] or leave this tree out"
    return InputError(found, where=names[derivations.sentence[context]], remedy=remedy)
