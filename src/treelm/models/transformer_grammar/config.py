"""Sizes, variant and bounds of a Transformer Grammar."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from treelm.corpora.corpus import PreparedCorpus
from treelm.models.bounds import BoundedConfig
from treelm.models.documents import DocumentConfig
from treelm.trees.transitions import Order

Composition = Literal["internal", "none"]
Positions = Literal["depth", "height", "place"]


@dataclass(frozen=True, kw_only=True)
class TransformerGrammarConfig(BoundedConfig, DocumentConfig):
    """A Transformer Grammar (TG), unless the switches say otherwise. Raises ``InputError`` for what makes no network.

    Without masking it is the model 1110 of Zhao et al. (2025); with ``composition = "none"`` and
    ``positions = "place"`` it is PLM (Qian et al. 2021), and with ``structured_heads`` PLM-mask. The bounds are part of
    the probability model: nonterminals beyond them have probability zero, in training and in search.
    """

    bounds: ClassVar[tuple[str, ...]] = ("max_open", "max_consecutive")
    is_binary: ClassVar[bool] = False

    size: int = 256
    """Units of embeddings and of every layer (D); the feed-forward nets are four times as wide."""
    num_layers: int = 4
    """Blocks on top of each other (N)."""
    num_heads: int = 4
    """Heads of attention of each layer (H), which share the units."""
    dropout: float = 0.2
    """Of embeddings, of what each half of a block adds, and of h before both softmaxes; not of attention."""

    composition: Composition = "internal"
    """``internal``: a closed constituent is composed by a position that sees its parts alone. ``none``: closing
    brackets are tokens like any other."""
    masking: bool = True
    """Hide what stands inside of closed constituents (``internal``); else all that was ever read is seen."""
    structured_heads: bool = False
    """Of every layer, the first head sees what stands before the innermost open nonterminal, the second this
    nonterminal and what follows (``none``)."""
    positions: Positions = "depth"
    """What the distance of two positions is: the difference of their depths in the tree, of their heights on the stack,
    or of their places among all that was read."""
    max_distance: int = 30
    """Distances above this one share its key."""

    max_open: int = 100
    """Most nonterminals that may be open at a time."""
    max_consecutive: int = 16
    """Most NT actions since the last other action."""

    def __post_init__(self) -> None:
        """Check values."""
        self.require_at_least(1, "size", "num_layers", "num_heads", "max_distance", *self.bounds)
        self.require_dropout("dropout")
        self.require_one_of("composition", get_args(Composition))
        self.require_one_of("positions", get_args(Positions))
        self.require("num_heads", self.size % self.num_heads == 0, f"a divisor of size = {self.size}")
        if self.structured_heads:
            self.require("composition", self.composition == "none", "'none' with structured_heads")
            self.require("num_heads", self.num_heads >= 2, "at least 2 with structured_heads")
        self.check_context()

    @property
    def order(self) -> Order:
        """Place of NT(X): before its constituent."""
        return "top-down"

    @property
    def composes(self) -> bool:
        """Whether REDUCE takes the parts of a constituent off the stack."""
        return self.composition != "none"

    @property
    def hides(self) -> bool:
        """Whether what was taken off the stack is seen no more; without composition nothing ever is."""
        return self.masking and self.composes

    @property
    def least_distance(self) -> int:
        """The least distance that has a key: children are one deeper than the closing bracket that composes them."""
        return 0 if self.positions == "place" else -1

    @property
    def num_distances(self) -> int:
        """Number of distances that have a key (R)."""
        return self.max_distance - self.least_distance + 1

    def needed_bounds(self, corpus: PreparedCorpus) -> dict[str, NDArray[np.int16]]:
        """The open and the consecutive nonterminals of every tree."""
        needed = corpus.bounds(self.order)
        return {"max_open": needed.max_open, "max_consecutive": needed.max_consecutive}
