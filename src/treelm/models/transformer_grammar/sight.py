"""What the positions of one tree see, by a stack that is walked: for pictures. Batches have ``positions.seen``."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from treelm.corpora.batches import SentenceBatch
from treelm.models.structures import BOUNDARY, StackSight
from treelm.models.transformer_grammar.config import TransformerGrammarConfig
from treelm.trees.transitions import FIRST_NT, REDUCE, SHIFT, to_actions
from treelm.trees.tree import Tree


def sight_of_tree(tree: Tree, config: TransformerGrammarConfig) -> StackSight:
    """Walk the stack of a tree, as the model builds it: a binary tree, if it builds such.

    A word in pieces is one position; of PLM-mask's heads it is what any of them sees. Top-down, the closing bracket of
    the root ends the sentence and has no position; bottom-up, opening brackets have none.
    """
    labels = list(dict.fromkeys(constituent.label for constituent in tree.constituents()))
    words = iter(tree.words())
    tokens, seen, composes = list[str](), list[tuple[int, ...]](), list[bool]()
    stack, pushed = list[int](), list[int]()  # what stands on the stack, and what ever did
    opened = list[tuple[str, int]]()  # labels of open nonterminals, and their places on the stack

    def read(token: str, sees: Sequence[int], *, is_composing: bool = False) -> int:
        tokens.append(token)
        seen.append((*sees, len(seen)))
        composes.append(is_composing)
        return len(seen) - 1

    def push(token: str) -> None:
        position = read(token, stack if config.hides else pushed)
        stack.append(position)
        pushed.append(position)

    push(BOUNDARY)
    for action in _with_positions(to_actions(tree, {label: number for number, label in enumerate(labels)}), config):
        if action == SHIFT:
            push(next(words))
        elif action != REDUCE:
            opened.append((labels[action - FIRST_NT], len(stack)))
            if not config.is_bottom_up:
                push(f"({opened[-1][0]}")
        else:
            label, begin = opened.pop()
            if config.composition != "internal":
                del stack[begin if config.composes else len(stack) :]
                push(f"{label})")
                continue
            composed = read(f"{label})", stack[begin:], is_composing=True)
            stack[begin:] = [composed]
            pushed.append(composed)
            read(f"{label})", stack if config.hides else pushed)
    return StackSight(tokens=tuple(tokens), seen=tuple(seen), composes=tuple(composes))


def _with_positions(actions: Sequence[int], config: TransformerGrammarConfig) -> Sequence[int]:
    """All but the end of the sentence, which top-down is the REDUCE of the root, and bottom-up a FINISH behind it."""
    return actions if config.is_bottom_up else actions[:-1]


def words_of_positions(
    batch: SentenceBatch, ends_word: NDArray[np.bool_], config: TransformerGrammarConfig
) -> list[int]:
    """Of each position of the one tree of a batch, over tokens, that of ``sight_of_tree``, where a word is one."""
    assert batch.actions is not None
    tokens, place = iter(batch.tokens.tolist()), 0
    found = [place]
    is_inside = False  # of a word whose last piece is to come
    for action in _with_positions(batch.actions.tolist(), config):
        if action >= FIRST_NT and config.is_bottom_up:
            continue
        for _ in range(2 if action == REDUCE and config.composition == "internal" else 1):
            place += not is_inside
            found.append(place)
        is_inside = action == SHIFT and not ends_word[next(tokens)]
    return found
