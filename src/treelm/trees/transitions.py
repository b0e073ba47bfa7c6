"""Trees as sequences of actions, top-down and in-order, as integers.

``SHIFT`` is 0, ``REDUCE`` is 1, ``NT(X)`` is 2 + the index of X among the labels; in-order sequences end with
``FINISH``, 2 + the number of labels. Top-down opens a constituent before its first child (Dyer et al. 2016), in-order
after it (Liu & Zhang 2017).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from treelm.errors import InputError
from treelm.trees.tree import Tree

SHIFT: Final = 0
REDUCE: Final = 1
FIRST_NT: Final = 2

Order: TypeAlias = Literal["top-down", "in-order"]


def finish_action(num_labels: int) -> int:
    """The number of FINISH, which ends in-order sequences."""
    return FIRST_NT + num_labels


def action_name(action: int, labels: Sequence[str]) -> str:
    """An action as people write it: ``SHIFT``, ``REDUCE``, ``NT(X)`` or ``FINISH``."""
    if action in (SHIFT, REDUCE):
        return "REDUCE" if action else "SHIFT"
    if FIRST_NT <= action < finish_action(len(labels)):
        return f"NT({labels[action - FIRST_NT]})"
    return "FINISH" if action == finish_action(len(labels)) else f"action {action}"


def to_actions(tree: Tree, label_index: Mapping[str, int], order: Order = "top-down") -> list[int]:
    """The actions that build the tree. Raises ``InputError`` for a label that ``label_index`` does not hold."""
    _check_order(order)
    actions: list[int] = []
    todo: list[Tree | str | int] = [tree]
    while todo:
        node = todo.pop()
        if isinstance(node, int):
            actions.append(node)
        elif isinstance(node, str):
            actions.append(SHIFT)
        elif order == "in-order":
            todo.append(REDUCE)
            todo.extend(node.children[:0:-1])
            todo.append(_open_action(node.label, label_index))
            todo.append(node.children[0])
        else:
            actions.append(_open_action(node.label, label_index))
            todo.append(REDUCE)
            todo.extend(reversed(node.children))
    return [*actions, finish_action(len(label_index))] if order == "in-order" else actions


def _check_order(order: str) -> None:
    if order not in ("top-down", "in-order"):
        raise InputError(f"order {order!r}", remedy='choose "top-down" or "in-order"')


def _open_action(label: str, label_index: Mapping[str, int]) -> int:
    index = label_index.get(label)
    if index is None:
        raise InputError(f"unknown constituent label {label!r}", remedy=f"the labels are {', '.join(label_index)}")
    return FIRST_NT + index


def from_actions(
    actions: Sequence[int] | NDArray[np.integer], words: Sequence[str], labels: Sequence[str], order: Order = "top-down"
) -> Tree:
    """The tree that the actions build over the words; raises ``ValueError`` saying what is wrong at which action."""
    _check_order(order)
    stack = _Stack(words, labels)
    step = stack.open_after_first_child if order == "in-order" else stack.open_before_children
    for position, action in enumerate(np.asarray(actions, dtype=np.int64).tolist()):
        problem = stack.apply(action, step, may_finish=order == "in-order")
        if problem:
            raise ValueError(f"action {position}, {action_name(action, labels)}: {problem}")
    return stack.result(must_finish=order == "in-order")


class _Stack:
    """The stack that a sequence of actions has built so far. Methods give the problem, or None."""

    def __init__(self, words: Sequence[str], labels: Sequence[str]) -> None:
        self._words = words
        self._labels = labels
        self._num_shifted = 0
        self._open: list[tuple[str, list[Tree | str]]] = []
        self._complete: Tree | str | None = None  # outside any open constituent
        self._finished = False

    def apply(self, action: int, open_constituent: Callable[[str], str | None], *, may_finish: bool) -> str | None:
        if self._finished:
            return "the sentence has ended"
        if action == SHIFT:
            return self._shift()
        if action == REDUCE:
            return self._reduce()
        if FIRST_NT <= action < FIRST_NT + len(self._labels):
            return open_constituent(self._labels[action - FIRST_NT])
        if may_finish and action == finish_action(len(self._labels)):
            return self._finish()
        return f"no such action among {len(self._labels)} labels"

    def _shift(self) -> str | None:
        if self._num_shifted == len(self._words):
            return f"no word left of {len(self._words)}"
        self._num_shifted += 1
        return self._add(self._words[self._num_shifted - 1])

    def _add(self, node: Tree | str) -> str | None:
        if self._open:
            self._open[-1][1].append(node)
        elif self._complete is None:
            self._complete = node
        else:
            return "no constituent is open"
        return None

    def _reduce(self) -> str | None:
        if not self._open:
            return "no constituent is open"
        label, children = self._open[-1]
        if not children:
            return f"constituent {label} has no children"
        self._open.pop()
        return self._add(Tree(label, children))

    def open_before_children(self, label: str) -> str | None:
        if self._complete is not None:
            return "the tree is complete"
        self._open.append((label, []))
        return None

    def open_after_first_child(self, label: str) -> str | None:
        first_child: Tree | str
        if self._open:
            siblings = self._open[-1][1]
            if len(siblings) < 2:
                return "no completed first child"
            first_child = siblings.pop()
        elif self._complete is None:
            return "no completed first child"
        else:
            first_child, self._complete = self._complete, None
        self._open.append((label, [first_child]))
        return None

    def _finish(self) -> str | None:
        if self._open or not isinstance(self._complete, Tree):
            return "the tree is not complete"
        self._finished = True
        return None

    def result(self, *, must_finish: bool) -> Tree:
        if self._open:
            raise ValueError(f"the actions end with {len(self._open)} open constituents, innermost {self._open[-1][0]}")
        if not isinstance(self._complete, Tree):
            raise ValueError("the actions end without a constituent")
        if self._num_shifted < len(self._words):
            raise ValueError(f"the actions end with {len(self._words) - self._num_shifted} words left")
        if must_finish and not self._finished:
            raise ValueError("the actions end without FINISH")
        return self._complete


def top_down_to_in_order(
    actions: NDArray[np.integer],
    offsets: NDArray[np.integer],
    num_labels: int,
    *,
    ends_word: NDArray[np.bool_] | None = None,
) -> tuple[NDArray[np.integer], NDArray[np.int64]]:
    """In-order actions of many sentences from top-down ones; both flat.

    Sentence b is ``actions[offsets[b]:offsets[b + 1]]``. Every NT moves to just after its first child is complete, and
    FINISH ends each sentence. When words are written in
    several pieces with one SHIFT each, ``ends_word`` says of each SHIFT, in order, whether it ends its word; a first
    child that is a word is complete with its last piece. The result has the dtype of ``actions``. Raises ``ValueError``
    when a sentence is not one well-formed constituent. Takes n log n time without a loop over actions.
    """
    starts: NDArray[np.int64] = np.asarray(offsets, dtype=np.int64)
    partner = partners(actions, starts)
    positions = np.arange(len(actions), dtype=np.int64)
    opens = np.flatnonzero(actions >= FIRST_NT)
    first_child = opens + 1
    end = np.where(actions[first_child] == SHIFT, first_child, partner[first_child])
    if ends_word is not None:
        shifts = np.flatnonzero(actions == SHIFT)
        last_pieces = shifts[ends_word]
        words = actions[first_child] == SHIFT
        end[words] = last_pieces[np.searchsorted(last_pieces, first_child[words])]
    # Doubled, so that an NT fits between the end of its first child and what follows; no two have the same first child.
    keys = 2 * positions
    keys[opens] = 2 * end + 1
    finishes = np.full(len(starts) - 1, finish_action(num_labels), dtype=actions.dtype)
    keys = np.concatenate([keys, 2 * starts[1:] - 1])
    order = np.argsort(keys, kind="stable")
    return np.concatenate([actions, finishes])[order], starts + np.arange(len(starts))


def partners(actions: NDArray[np.integer], offsets: NDArray[np.int64]) -> NDArray[np.int64]:
    """For every NT of flat top-down sequences the position of its REDUCE and the other way round; -1 for SHIFT.

    Raises ``ValueError`` when a sentence is not one well-formed constituent.
    """
    opens, closes = actions >= FIRST_NT, actions == REDUCE
    depth = np.cumsum(opens.astype(np.int64) - closes)  # open constituents after each action
    _check_well_formed(actions, offsets, depth)
    brackets = np.flatnonzero(opens | closes)
    # At one depth, NT and REDUCE take turns, so a sort by depth that keeps the order puts partners side by side.
    level = depth[brackets] + closes[brackets]
    pairs = brackets[np.argsort(level, kind="stable")].reshape(-1, 2)
    partner = np.full(len(actions), -1, dtype=np.int64)
    partner[pairs[:, 0]] = pairs[:, 1]
    partner[pairs[:, 1]] = pairs[:, 0]
    return partner


def _check_well_formed(actions: NDArray[np.integer], offsets: NDArray[np.int64], depth: NDArray[np.int64]) -> None:
    if len(offsets) < 1 or offsets[0] != 0 or offsets[-1] != len(actions) or (np.diff(offsets) < 1).any():
        raise ValueError("offsets must rise from 0 to the number of actions")
    last = np.zeros(len(actions), dtype=np.bool_)
    last[offsets[1:] - 1] = True
    empty = (actions[:-1] >= FIRST_NT) & (actions[1:] == REDUCE)
    wrong = (depth == 0) != last
    wrong[1:] |= empty
    wrong |= depth < 0
    wrong[offsets[:-1]] |= actions[offsets[:-1]] < FIRST_NT
    if wrong.any():
        position = int(np.argmax(wrong))
        sentence = int(np.searchsorted(offsets, position, side="right")) - 1
        raise ValueError(f"sentence {sentence}, action {position - int(offsets[sentence])}: not one complete tree")
