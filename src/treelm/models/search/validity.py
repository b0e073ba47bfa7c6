"""Which actions of a derivation are valid: one rule that training and search share.

Only bounds of the model mask: depth of the batch, number of actions and length of the sentence never do. There are no
dead ends, and ending has probability bounded below everywhere, so the probabilities of all (tree, sentence) pairs sum
to one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from treelm.trees.transitions import FIRST_NT, REDUCE, SHIFT, Order

if TYPE_CHECKING:
    from torch import Tensor  # which takes seconds to load: a recipe is read without it


class Bounds(Protocol):
    """The part of a system's config that the rule knows."""

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
    """Facts that the rule looks at, for n derivations: four NumPy or torch arrays (n,)."""

    num_open: NDArray[np.int64] | Tensor
    """Open nonterminals."""

    num_consecutive: NDArray[np.int64] | Tensor
    """NT actions since the last other action (top-down) or since the last SHIFT (in-order)."""

    top: NDArray[np.int64] | Tensor
    """EMPTY, WORD, CONSTITUENT or OPEN."""

    in_word: NDArray[np.bool_] | Tensor
    """True where the last token does not end its word."""

    only_child: NDArray[np.bool_] | Tensor | None = None
    """True where the top is a completed item and the only child so far of the innermost open nonterminal. Only the rule
    of binary trees looks at it."""


class Valid(NamedTuple):
    """Validity of each kind of action, for n derivations: boolean arrays (n,) of the configuration's type."""

    shift: NDArray[np.bool_] | Tensor
    reduce: NDArray[np.bool_] | Tensor
    nonterminal: NDArray[np.bool_] | Tensor
    finish: NDArray[np.bool_] | Tensor  # in-order only; all false top-down


def valid_actions(bounds: Bounds, state: Configuration) -> Valid:
    """Apply the rule. After a token that does not end its word, only SHIFT is valid."""
    rule = _valid_in_order if bounds.order == "in-order" else _valid_binary if bounds.is_binary else _valid_top_down
    valid = rule(bounds, state)
    free = ~state.in_word
    return Valid(
        shift=valid.shift | state.in_word,
        reduce=valid.reduce & free,
        nonterminal=valid.nonterminal & free,
        finish=valid.finish & free,
    )


def _within_bounds(bounds: Bounds, state: Configuration) -> NDArray[np.bool_] | Tensor:
    return (state.num_open < bounds.max_open) & (state.num_consecutive < bounds.max_consecutive)


def _valid_top_down(bounds: Bounds, state: Configuration) -> Valid:
    is_inside = state.num_open >= 1
    return Valid(
        shift=is_inside,
        reduce=is_inside & (state.top != OPEN),
        nonterminal=_within_bounds(bounds, state),
        finish=is_inside & ~is_inside,
    )


def _valid_binary(bounds: Bounds, state: Configuration) -> Valid:
    """Two children each, so that REDUCE comes after the second one, alone; the only word of a sentence may be one."""
    assert state.only_child is not None
    is_inside = state.num_open >= 1
    has_room = (state.top == OPEN) | state.only_child
    is_one_word = (state.num_open == 1) & (state.top == WORD) & state.only_child
    return Valid(
        shift=is_inside & has_room,
        reduce=is_inside & (~has_room | is_one_word),
        nonterminal=(~is_inside | has_room) & _within_bounds(bounds, state),
        finish=is_inside & ~is_inside,
    )


def _valid_in_order(bounds: Bounds, state: Configuration) -> Valid:
    is_inside = state.num_open >= 1
    has_corner = (state.top == WORD) | (state.top == CONSTITUENT)
    return Valid(
        shift=is_inside | (state.top == EMPTY),
        reduce=is_inside,
        nonterminal=has_corner & _within_bounds(bounds, state),
        finish=~is_inside & (state.top == CONSTITUENT),
    )


def spread(valid: Valid, bounds: Bounds, num_labels: int) -> NDArray[np.bool_]:
    """The rule's answer as a mask over action numbers, NumPy only: (n, num_actions)."""
    in_order = bounds.order == "in-order"
    mask = np.empty((len(valid.shift), FIRST_NT + num_labels + in_order), np.bool_)
    mask[:, SHIFT] = valid.shift
    mask[:, REDUCE] = valid.reduce
    mask[:, FIRST_NT : FIRST_NT + num_labels] = np.asarray(valid.nonterminal)[:, None]
    if in_order:
        mask[:, -1] = valid.finish
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
