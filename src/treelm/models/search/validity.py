"""Which actions of a derivation are valid: one rule that training and search share.

Actions are masked by the structure of trees and by bounds of the model, never by the length of the sentence, the number
of actions or the rest of the batch. Every derivation can be completed, and the probability of ending is bounded from
below, so the probabilities of all (tree, sentence) pairs sum to one.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from treelm.trees.transitions import FIRST_NT, REDUCE, SHIFT, Order


class Bounds(Protocol):
    """The part of a system's config on which the rule depends."""

    @property
    def order(self) -> Order:
        """Place of NT(X): before its constituent, or after its first child."""

    @property
    def max_open(self) -> int:
        """Most nonterminals that may be open at a time."""

    @property
    def max_consecutive(self) -> int:
        """Most NT actions since the last SHIFT (in-order) or since the last other action (top-down)."""

    @property
    def is_binary(self) -> bool:
        """Whether a constituent has just two children, but for the only word of a sentence (top-down)."""


# What lies on top of the stack.
EMPTY, WORD, CONSTITUENT, OPEN = 0, 1, 2, 3


class Configuration(NamedTuple):
    """What the rule depends on, of n derivations: arrays (n,)."""

    num_open: NDArray[np.int64]
    """Open nonterminals."""

    num_consecutive: NDArray[np.int64]
    """NT actions since the last other action (top-down) or since the last SHIFT (in-order)."""

    top: NDArray[np.int64]
    """EMPTY, WORD, CONSTITUENT or OPEN."""

    in_word: NDArray[np.bool_]
    """True where the last token does not end its word."""

    only_child: NDArray[np.bool_] | None = None
    """True where the top is a completed item and the only child so far of the innermost open nonterminal. Only needed
    for binary trees."""


def valid_actions(bounds: Bounds, state: Configuration, num_labels: int) -> NDArray[np.bool_]:
    """Apply the rule: a mask over action numbers (n, num_actions).

    In binary trees REDUCE comes after the second child, and after it nothing else; the only word of a sentence may be
    an only child. After a token that does not end its word, only SHIFT is valid.
    """
    in_order, top, is_inside = bounds.order == "in-order", state.top, state.num_open >= 1
    opens = (state.num_open < bounds.max_open) & (state.num_consecutive < bounds.max_consecutive)
    mask = np.zeros((len(top), FIRST_NT + num_labels + in_order), np.bool_)
    if in_order:
        shift, reduce = is_inside | (top == EMPTY), is_inside
        opens &= (top == WORD) | (top == CONSTITUENT)
        mask[:, -1] = ~is_inside & (top == CONSTITUENT)
    elif bounds.is_binary:
        assert state.only_child is not None
        has_room = (top == OPEN) | state.only_child
        is_one_word = (state.num_open == 1) & (top == WORD) & state.only_child
        shift, reduce = is_inside & has_room, is_inside & (~has_room | is_one_word)
        opens &= ~is_inside | has_room
    else:
        shift, reduce = is_inside, is_inside & (top != OPEN)
    mask[:, SHIFT], mask[:, REDUCE] = shift, reduce
    mask[:, FIRST_NT : FIRST_NT + num_labels] = opens[:, None]
    mask[state.in_word] = False
    mask[:, SHIFT] |= state.in_word
    return mask


def log_softmax(logits: NDArray[np.floating], valid: NDArray[np.bool_]) -> NDArray[np.float64]:
    """log p of the valid actions, float64; -inf for the others, and for all where none is valid."""
    masked = np.where(valid, logits, -np.inf).astype(np.float64)
    highest = masked.max(1, keepdims=True)
    masked -= np.maximum(highest, -1e300)
    with np.errstate(divide="ignore"):
        total = np.log(np.exp(masked).sum(1, keepdims=True))
    masked -= np.maximum(total, -1e300)
    return masked
