"""The sizes, the variant and the bounds of an RNNG."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from treelm.corpora.corpus import PreparedCorpus
from treelm.models.bounds import BoundedConfig, CheckedConfig
from treelm.trees.transitions import Order

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
