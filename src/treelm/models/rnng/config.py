"""The config of an RNNG, and which actions are valid under it: one rule that training and search share.

Only bounds of the model mask: depth of the batch, number of actions and length of the sentence never do. There are no
dead ends, and ending has probability bounded below everywhere, so the probabilities of all (tree, sentence) pairs sum
to one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from treelm.corpora.corpus import PreparedCorpus
from treelm.models.bounds import BoundedConfig, CheckedConfig
from treelm.trees.transitions import FIRST_NT, REDUCE, SHIFT, Order

if TYPE_CHECKING:
    from torch import Tensor  # which takes seconds to load: a recipe is read without it

DropoutUnit = Literal["type", "token"]
CompositionKind = Literal["lstm", "attention", "none"]

EMBEDDING_DEVIATION = 0.3
"""Initial standard deviation of word, label and action vectors. Training starts slower with 1.0 and with 0.1."""


@dataclass(frozen=True, kw_only=True)
class RNNGConfig(BoundedConfig, CheckedConfig):
    """Sizes, variant and bounds of an RNNG. Raises ``InputError`` for values that make no network.

    The bounds are part of the probability model: nonterminals beyond them have probability zero, in training and in
    search. They should hold the deepest training tree and a margin.
    """

    bounds: ClassVar[tuple[str, ...]] = ("max_open", "max_consecutive")

    embedding_size: int = 256
    """Size of word, label and constituent vectors (E)."""

    hidden_size: int = 256
    """Size of the state of each layer of the stack LSTM (H)."""

    num_layers: int = 2
    """Layers of the stack LSTM."""

    dropout: float = 0.1
    """Probability that a unit is zeroed in training."""

    embedding_dropout_by: DropoutUnit = "type"
    """Draw one dropout mask of each word, label and action vector a batch ("type"), or one each push ("token")."""

    order: Order = "top-down"
    """Place of NT(X): before its constituent ("top-down"), or after its first child ("in-order")."""

    composition: CompositionKind = "lstm"
    """Composition of a closed constituent into one vector; ``none`` is the action LSTM, which never composes."""

    max_open: int = 100
    """Most nonterminals that may be open at a time."""

    max_consecutive: int = 16
    """Most NT actions since the last SHIFT (in-order) or since the last other action (top-down)."""

    def __post_init__(self) -> None:
        """Check values; raises ``InputError`` naming the field."""
        self.require_at_least(1, "embedding_size", "hidden_size", "num_layers", *self.bounds)
        self.require_dropout("dropout")
        for name, kind in (("embedding_dropout_by", DropoutUnit), ("order", Order), ("composition", CompositionKind)):
            self.require_one_of(name, get_args(kind))
        if self.composition == "attention":
            self.require("embedding_size", self.embedding_size % 2 == 0, "an even number with attention composition")

    def needed_bounds(self, corpus: PreparedCorpus) -> dict[str, NDArray[np.int16]]:
        """The open and the consecutive nonterminals of every tree, in the order of this model's actions."""
        needed = corpus.bounds(self.order)
        return {"max_open": needed.max_open, "max_consecutive": needed.max_consecutive}


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


class Valid(NamedTuple):
    """Validity of each kind of action, for n derivations: boolean arrays (n,) of the configuration's type."""

    shift: NDArray[np.bool_] | Tensor
    reduce: NDArray[np.bool_] | Tensor
    nonterminal: NDArray[np.bool_] | Tensor
    finish: NDArray[np.bool_] | Tensor  # in-order only; all false top-down


def valid_actions(config: RNNGConfig, state: Configuration) -> Valid:
    """Apply the rule. After a token that does not end its word, only SHIFT is valid."""
    rule = _valid_top_down if config.order == "top-down" else _valid_in_order
    valid = rule(config, state)
    free = ~state.in_word
    return Valid(
        shift=valid.shift | state.in_word,
        reduce=valid.reduce & free,
        nonterminal=valid.nonterminal & free,
        finish=valid.finish & free,
    )


def _within_bounds(config: RNNGConfig, state: Configuration) -> NDArray[np.bool_] | Tensor:
    return (state.num_open < config.max_open) & (state.num_consecutive < config.max_consecutive)


def _valid_top_down(config: RNNGConfig, state: Configuration) -> Valid:
    is_inside = state.num_open >= 1
    return Valid(
        shift=is_inside,
        reduce=is_inside & (state.top != OPEN),
        nonterminal=_within_bounds(config, state),
        finish=is_inside & ~is_inside,
    )


def _valid_in_order(config: RNNGConfig, state: Configuration) -> Valid:
    is_inside = state.num_open >= 1
    has_corner = (state.top == WORD) | (state.top == CONSTITUENT)
    return Valid(
        shift=is_inside | (state.top == EMPTY),
        reduce=is_inside,
        nonterminal=has_corner & _within_bounds(config, state),
        finish=~is_inside & (state.top == CONSTITUENT),
    )


def spread(valid: Valid, config: RNNGConfig, num_labels: int) -> NDArray[np.bool_]:
    """The rule's answer as a mask over action numbers, NumPy only: (n, num_actions)."""
    in_order = config.order == "in-order"
    mask = np.empty((len(valid.shift), FIRST_NT + num_labels + in_order), np.bool_)
    mask[:, SHIFT] = valid.shift
    mask[:, REDUCE] = valid.reduce
    mask[:, FIRST_NT : FIRST_NT + num_labels] = np.asarray(valid.nonterminal)[:, None]
    if in_order:
        mask[:, -1] = valid.finish
    return mask
