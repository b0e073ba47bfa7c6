"""The sizes, the variant and the bounds of an RNNG."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from treelm.corpora.corpus import PreparedCorpus
from treelm.models.bounds import BoundedConfig
from treelm.models.documents import DocumentConfig
from treelm.trees.transitions import Order

DropoutUnit = Literal["type", "token"]
CompositionKind = Literal["lstm", "attention", "none"]
Objective = Literal["unsupervised", "trees"]

EMBEDDING_DEVIATION = 0.3
"""Initial standard deviation of word, label and action vectors. Training starts slower with 1.0 and with 0.1."""


@dataclass(frozen=True, kw_only=True)
class RNNGConfig(BoundedConfig, DocumentConfig):
    """Sizes, variant and bounds of an RNNG. Raises ``InputError`` for values that make no network.

    The bounds are part of the probability model: nonterminals beyond them have probability zero, in training and in
    search. They should hold the deepest training tree and a margin.
    """

    bounds: ClassVar[tuple[str, ...]] = ("max_open", "max_consecutive")
    is_binary: ClassVar[bool] = False
    """Whether constituents have two children each: see ``search/validity.py``."""

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
        self.check_context()

    def needed_bounds(self, corpus: PreparedCorpus) -> dict[str, NDArray[np.int16]]:
        """The open and the consecutive nonterminals of every tree, in the order of this model's actions."""
        needed = corpus.bounds(self.order)
        return {"max_open": needed.max_open, "max_consecutive": needed.max_consecutive}


@dataclass(frozen=True, kw_only=True)
class UnsupervisedRNNGConfig(RNNGConfig):
    """Sizes of an RNNG over binary trees and of its inference network, and how both are trained.

    Raises ``InputError`` for values that make no network.
    """

    is_binary: ClassVar[bool] = True

    objective: Objective = "unsupervised"
    """``unsupervised`` looks at words alone. ``trees`` trains both networks on given trees, made binary by branching
    right and without their labels: a start, from which an unsupervised run goes on (``start_from``)."""

    num_samples: int = 8
    """Trees that are drawn for each sentence in training."""

    kl_warmup_steps: int = 0
    """Updates in which the weight of the divergence between the two networks' trees rises from 0 to 1."""

    inference_steps: int | None = None
    """Updates after which the inference network rests and the RNNG goes on alone; None: it never rests."""

    inference_embedding_size: int = 128
    """Size of the word vectors that the inference network has for itself."""

    inference_hidden_size: int = 128
    """Units of its LSTM in one direction."""

    inference_num_layers: int = 1
    """Layers of its LSTM."""

    inference_span_size: int = 128
    """Units of the hidden layer that scores spans."""

    inference_dropout: float = 0.0
    """Probability that a unit is zeroed in what its LSTM reads and in its states."""

    bound_samples: int = 100
    """Trees that are drawn for each sentence where ``treelm evaluate`` bounds its probability."""

    bound_temperature: float = 2.0
    """Scores of spans are divided by it for these draws: above 1, trees of all kinds are drawn more often."""

    def __post_init__(self) -> None:
        """Check values; raises ``InputError`` naming the field."""
        super().__post_init__()
        self.require("order", self.order == "top-down", '"top-down": trees are binary')
        self.require("context", self.context == "sentence", '"sentence": it reads no documents')
        self.require_one_of("objective", get_args(Objective))
        self.require_at_least(1, "bound_samples")
        self.require_at_least(2, "num_samples")  # each is compared with the others
        self.require_at_least(0, "kl_warmup_steps")
        for name in ("embedding_size", "hidden_size", "num_layers", "span_size"):
            self.require_at_least(1, f"inference_{name}")
        if self.inference_steps is not None:
            self.require_at_least(0, "inference_steps")
        self.require_dropout("inference_dropout")
        self.require("bound_temperature", self.bound_temperature > 0, "a number above 0")

    def needed_bounds(self, corpus: PreparedCorpus) -> dict[str, NDArray[np.int16]]:
        """What any binary tree of a sentence may need: one that branches to one side opens all but one at once."""
        most = np.maximum(np.diff(corpus.word_offsets) - 1, 1).astype(np.int16)
        return dict.fromkeys(self.bounds, most)
