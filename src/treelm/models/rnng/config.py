"""What an RNNG is built from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from treelm.corpora.corpus import PreparedCorpus
from treelm.errors import InputError
from treelm.models.bounds import BoundedConfig

Order = Literal["top-down", "in-order"]
DropoutUnit = Literal["type", "token"]
CompositionKind = Literal["lstm", "attention", "none"]


@dataclass(frozen=True, kw_only=True)
class RNNGConfig(BoundedConfig):
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
    """Whether dropout on word, label and action vectors draws a mask for each of them, once a batch, or each push."""

    order: Order = "top-down"
    """Whether NT(X) comes before its constituent, or after its first child."""

    composition: CompositionKind = "lstm"
    """How a closed constituent becomes one vector; ``none`` is the action LSTM, which never composes."""

    max_open: int = 100
    """Most nonterminals that may be open at a time."""

    max_consecutive: int = 16
    """Most NT actions since the last SHIFT (in-order) or since the last other action (top-down)."""

    def __post_init__(self) -> None:
        for name in ("embedding_size", "hidden_size", "num_layers", "max_open", "max_consecutive"):
            self._require(name, getattr(self, name) >= 1, "an integer of at least 1")
        self._require("dropout", 0.0 <= self.dropout < 1.0, "a probability below 1")
        self._require("embedding_dropout_by", self.embedding_dropout_by in ("type", "token"), "'type' or 'token'")
        self._require("order", self.order in ("top-down", "in-order"), "'top-down' or 'in-order'")
        self._require("composition", self.composition in ("lstm", "attention", "none"), "'lstm', 'attention' or 'none'")
        if self.composition == "attention":
            self._require("embedding_size", self.embedding_size % 2 == 0, "an even number with attention composition")

    def needed_bounds(self, corpus: PreparedCorpus) -> dict[str, NDArray[np.int16]]:
        """The open and the consecutive nonterminals of every tree, in the order of this model's actions."""
        needed = corpus.bounds(self.order)
        return {"max_open": needed.max_open, "max_consecutive": needed.max_consecutive}

    def _require(self, name: str, is_valid: bool, remedy: str) -> None:
        if not is_valid:
            value: Any = getattr(self, name)
            raise InputError(f"{name} is {value!r}", where="[model]", remedy=f"give {remedy}")
