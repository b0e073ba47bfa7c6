"""Trees as sequences of actions, top-down and in-order, as integers.

``SHIFT`` is 0, ``REDUCE`` is 1, ``NT(X)`` is 2 + the index of X among the labels; in-order sequences end with
``FINISH``, 2 + the number of labels. Top-down opens a constituent before its first child (Dyer et al. 2016), in-order
after it (Liu & Zhang 2017).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Final, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from treelm.errors import InputError, check_choice
from treelm.trees.tree import Tree

SHIFT: Final = 0
REDUCE: Final = 1
FIRST_NT: Final = 2

Order: TypeAlias = Literal["top-down", "in-order"]


def finish_action(num_labels: int) -> int:
    """The number of FINISH, which ends in-order sequences."""
    return FIRST_NT + num_labels


def to_actions(tree: Tree, label_index: Mapping[str, int], order: Order = "top-down") -> list[int]:
    """The actions that build the tree. Raises ``InputError`` for a label that ``label_index`` does not hold."""
    check_choice("order", order, get_args(Order))
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


def _open_action(label: str, label_index: Mapping[str, int]) -> int:
    index = label_index.get(label)
    if index is None:
        raise InputError(f"unknown constituent label {label!r}", remedy=f"the labels are {', '.join(label_index)}")
    return FIRST_NT + index


def from_actions(
    actions: Sequence[int] | NDArray[np.integer], words: Sequence[str], labels: Sequence[str], order: Order = "top-down"
) -> Tree:
    """The tree that the actions build over the words; raises ``ValueError`` that names the first impossible action."""
    check_choice("order", order, get_args(Order))
    in_order, finish = order == "in-order", finish_action(len(labels))
    stack: list[tuple[str, list[Tree | str]]] = [("", [])]  # open constituents; the lowest holds what is in none
    coming, has_ended = deque(words), False
    for position, action in enumerate(np.asarray(actions, dtype=np.int64).tolist()):
        label, children = stack[-1]
        is_open = len(stack) > 1
        if action == SHIFT and coming and (is_open or (in_order and not children)):
            children.append(coming.popleft())
        elif action == REDUCE and is_open and children:
            stack.pop()
            stack[-1][1].append(Tree(label, children))
        elif FIRST_NT <= action < finish and not in_order and (is_open or not children):
            stack.append((labels[action - FIRST_NT], []))
        elif FIRST_NT <= action < finish and in_order and len(children) > is_open and not has_ended:
            stack.append((labels[action - FIRST_NT], [children.pop()]))
        elif action == finish and in_order and not is_open and children and not has_ended:
            has_ended = True
        else:
            raise ValueError(f"action {position}, {action}: impossible with {len(stack) - 1} open constituents")
    top = stack[0][1][0] if stack[0][1] else None
    if len(stack) > 1 or coming or not isinstance(top, Tree) or has_ended != in_order:
        raise ValueError(f"the actions end with {len(stack) - 1} open constituents and {len(coming)} words left")
    return top


def top_down_to_in_order(
    actions: NDArray[np.integer],
    offsets: NDArray[np.integer],
    num_labels: int,
    *,
    ends_word: NDArray[np.bool_] | None = None,
) -> tuple[NDArray[np.integer], NDArray[np.int64]]:
    """In-order actions of many sentences from top-down ones; both flat.

    Sentence b is ``actions[offsets[b]:offsets[b + 1]]``. Every NT moves to just after its first child is complete, and
    FINISH ends each sentence. When words are written in several pieces with one SHIFT each, ``ends_word`` says of each
    SHIFT, in order, whether it ends its word; a first child that is a word is complete with its last piece. The result
    has the dtype of ``actions``. Raises ``ValueError`` when a sentence is not one well-formed constituent.
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
