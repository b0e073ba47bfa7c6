"""Sizes, variant and bounds of a Transformer Grammar."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from treelm.configs import Bound, Dropout, Size, configuration, require
from treelm.corpora.corpus import PreparedCorpus
from treelm.models.bounds import BoundedConfig, parts_of
from treelm.models.documents import DocumentConfig
from treelm.models.transformer_grammar.trees import binarised_trees, bottom_up_bounds, top_down_bounds
from treelm.trees.transitions import Order

GrammarOrder = Literal["top-down", "bottom-up"]
Composition = Literal["internal", "external", "none"]
Positions = Literal["depth", "height", "place"]


_BOUNDS: dict[GrammarOrder, tuple[str, ...]] = {
    "top-down": ("max_open", "max_consecutive"),
    "bottom-up": ("max_stack", "max_unary"),
}


@dataclass(frozen=True, kw_only=True)
class TopDownRule:
    """The bounds on which the rule of ``search/validity.py`` depends."""

    order: ClassVar[Order] = "top-down"
    max_open: Bound
    max_consecutive: Bound
    is_binary: bool


@configuration
class TransformerGrammarConfig(BoundedConfig, DocumentConfig):
    """A Transformer Grammar (TG), unless the switches say otherwise. Raises ``InputError`` for what makes no network.

    ``order``, ``binary`` and ``masking`` are three of the four switches of Zhao et al. (2025); with
    ``composition = "none"`` and ``positions = "place"`` it is PLM (Qian et al. 2021), and with ``structured_heads``
    PLM-mask. The bounds of its order are part of the probability model: trees beyond them have probability zero, in
    training and in search.
    """

    retired: ClassVar[Mapping[str, Any]] = {
        "embedding_dropout_by": "token",
        "softmax": "two-level",
        "kind_vector": False,
    }
    size: Size = 256
    """Units of embeddings and of every layer (D); the feed-forward nets are four times as wide."""
    num_layers: Size = 4
    """Blocks on top of each other (N)."""
    num_heads: Size = 4
    """Heads of attention of each layer (H), which share the units."""
    dropout: Dropout = 0.2
    """Dropout of embeddings, of what each half of a block adds, and of h before both softmaxes; not of attention."""

    order: GrammarOrder = "top-down"
    """``top-down``: brackets open before their constituents. ``bottom-up``: there are no opening brackets, and REDUCE
    says what it makes of how many items."""
    binary: bool = False
    """Trees become binary before training, to the right, and constituents have two children, but for the only word of a
    sentence."""
    composition: Composition = "internal"
    """``internal``: a closed constituent is composed by a position that sees its parts alone. ``external``: its closing
    bracket has the vector that a small Transformer of its own makes of its label and its children. ``none``: closing
    brackets are tokens like any other."""
    composer_size: Size = 128
    """Units of this small Transformer (``external``)."""
    composer_heads: Size = 4
    """Heads of its attention (``external``)."""
    composer_layers: Size = 1
    """Blocks of this small Transformer (``external``)."""
    masking: bool = True
    """Hide the parts of closed constituents (unless ``composition`` is ``none``); otherwise everything that was read is
    seen."""
    structured_heads: bool = False
    """In every layer, the first head sees what precedes the innermost open nonterminal, the second this nonterminal and
    what follows (only with ``composition`` = ``none``)."""
    positions: Positions = "depth"
    """The distance of two positions: the difference of their depths in the tree, of their heights on the stack, or of
    their places among all positions."""
    max_distance: Size = 30
    """Distances above this one share its key."""

    max_open: Bound = 100
    """Most nonterminals that may be open at a time."""
    max_consecutive: Bound = 16
    """Most NT actions since the last other action."""
    max_stack: Bound = 100
    """Bottom-up, most words and constituents that may be on the stack."""
    max_unary: Bound = 8
    """Bottom-up, most constituents of one item, one around the other; binary trees have at most one."""

    def __post_init__(self) -> None:
        """Check values."""
        require(self, "num_heads", self.size % self.num_heads == 0, f"a divisor of size = {self.size}")
        if self.is_bottom_up:
            require(self, "composition", self.composes, 'another than "none" with order = "bottom-up"')
            require(self, "positions", self.positions != "depth", '"height" or "place" with order = "bottom-up"')
        if self.structured_heads:
            require(self, "composition", self.composition == "none", "'none' with structured_heads")
            require(self, "num_heads", self.num_heads >= 2, "at least 2 with structured_heads")
        if self.composition == "external":
            divides = self.composer_size % self.composer_heads == 0
            require(self, "composer_size", divides, f"a multiple of composer_heads = {self.composer_heads}")

    @property
    def bounds(self) -> tuple[str, ...]:
        """The bounds of the order."""
        return _BOUNDS[self.order]

    @property
    def is_bottom_up(self) -> bool:
        """Whether there are no opening brackets."""
        return self.order == "bottom-up"

    @property
    def has_reach(self) -> bool:
        """Whether REDUCE must say how many items it takes."""
        return self.is_bottom_up and not self.binary

    @property
    def max_reach(self) -> int:
        """The most items that a REDUCE may take; 0 if it always takes two."""
        return self.max_stack if self.has_reach else 0

    @property
    def rule(self) -> TopDownRule:
        """The bounds for the rule of top-down actions."""
        return TopDownRule(max_open=self.max_open, max_consecutive=self.max_consecutive, is_binary=self.binary)

    @property
    def composes(self) -> bool:
        """Whether REDUCE takes the parts of a constituent off the stack."""
        return self.composition != "none"

    @property
    def hides(self) -> bool:
        """Whether parts of closed constituents are no longer seen; without composition they always are."""
        return self.masking and self.composes

    @property
    def least_distance(self) -> int:
        """The least distance that has a key. It is -1 if children may be deeper than the bracket that composes them."""
        return 0 if self.positions == "place" else -1

    @property
    def num_distances(self) -> int:
        """The number of distances that have a key (R)."""
        return self.max_distance - self.least_distance + 1

    def needed_bounds(self, corpus: PreparedCorpus) -> dict[str, NDArray[np.int16]]:
        """The least value of each bound that every tree needs: (trees,) each."""
        if not (self.binary or self.is_bottom_up):
            needed = corpus.bounds("top-down")
            return {"max_open": needed.max_open, "max_consecutive": needed.max_consecutive}
        given = parts_of(corpus) if corpus.has_trees else []
        parts = [binarised_trees(*part) if self.binary else part for part in given]
        find = bottom_up_bounds if self.is_bottom_up else top_down_bounds
        found = [find(*part) for part in parts]
        none = np.empty(0, np.int16)
        return {name: np.concatenate([none, *(part[name] for part in found)]) for name in self.bounds}
