"""The sizes, the variant and the bounds of an RNNG."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from treelm.configs import Bound, Dropout, Number, Positive, Size, configuration, require
from treelm.corpora.corpus import PreparedCorpus
from treelm.models.bounds import BoundedConfig
from treelm.models.documents import DocumentConfig
from treelm.trees.transitions import Order

DropoutUnit = Literal["type", "token"]
CompositionKind = Literal["lstm", "attention", "none"]
Objective = Literal["unsupervised", "trees"]

EMBEDDING_DEVIATION = 0.3
"""Initial standard deviation of word, label and action vectors. Training starts slower with 1.0 and with 0.1."""


@configuration
class RNNGConfig(BoundedConfig, DocumentConfig):
    """Sizes, variant and bounds of an RNNG. Raises ``InputError`` for values that make no network.

    The bounds are part of the probability model: nonterminals beyond them have probability zero, in training and in
    search. They should hold the deepest training tree and a margin.
    """

    bounds: ClassVar[tuple[str, ...]] = ("max_open", "max_consecutive")
    is_binary: ClassVar[bool] = False
    """Whether constituents have two children each (see ``search/validity.py``)."""

    embedding_size: Size = 256
    """Size of word, label and constituent vectors (E)."""

    hidden_size: Size = 256
    """Size of the state of each layer of the stack LSTM (H)."""

    num_layers: Size = 2
    """Layers of the stack LSTM."""

    dropout: Dropout = 0.1
    """Probability that a unit is zeroed in training."""

    embedding_dropout_by: DropoutUnit = "type"
    """Draw one dropout mask for each word, label and action vector of a batch ("type"), or for each push ("token")."""

    order: Order = "top-down"
    """Place of NT(X): before its constituent ("top-down"), or after its first child ("in-order", left-corner)."""

    composition: CompositionKind = "lstm"
    """Composition of a closed constituent into one vector; ``none`` is the action LSTM, which never composes."""

    max_open: Bound = 100
    """Most nonterminals that may be open at a time."""

    max_consecutive: Bound = 16
    """Most NT actions since the last SHIFT (in-order) or since the last other action (top-down)."""

    def __post_init__(self) -> None:
        """Check values; raises ``InputError`` naming the field."""
        if self.composition == "attention":
            require(self, "embedding_size", self.embedding_size % 2 == 0, "an even number with attention composition")

    def needed_bounds(self, corpus: PreparedCorpus) -> dict[str, NDArray[np.int16]]:
        """The most open and the most consecutive nonterminals of each tree, in the model's order of actions."""
        needed = corpus.bounds(self.order)
        return {"max_open": needed.max_open, "max_consecutive": needed.max_consecutive}


@configuration
class UnsupervisedRNNGConfig(RNNGConfig):
    """Sizes of an RNNG over binary trees and of its inference network, and how both are trained.

    Raises ``InputError`` for values that make no network.
    """

    is_binary: ClassVar[bool] = True

    objective: Objective = "unsupervised"
    """``unsupervised`` trains on words alone. ``trees`` trains both networks on given trees, which become binary by
    branching right and lose their labels; an unsupervised run can continue from there (``start_from``)."""

    num_samples: Annotated[Size, Field(ge=2)] = 8
    """Trees that are drawn for each sentence in training; the reward of each is compared with the others."""

    kl_warmup_steps: Number = 0
    """Updates in which the weight of the divergence between the two networks' trees rises from 0 to 1."""

    inference_steps: Number | None = None
    """Updates after which the inference network is frozen and the RNNG is trained alone; None: never."""

    inference_embedding_size: Size = 128
    """Size of the inference network's own word vectors."""

    inference_hidden_size: Size = 128
    """Units of its LSTM in one direction."""

    inference_num_layers: Size = 1
    """Layers of its LSTM."""

    inference_span_size: Size = 128
    """Units of the hidden layer that scores spans."""

    inference_dropout: Dropout = 0.0
    """Probability that a unit is zeroed in the inputs and in the states of its LSTM."""

    bound_samples: Size = 100
    """Trees that are drawn for each sentence where ``treelm evaluate`` bounds its probability."""

    bound_temperature: Positive = 2.0
    """Scores of spans are divided by it for these draws; above 1, improbable trees are drawn more often."""

    def __post_init__(self) -> None:
        """Check values; raises ``InputError`` naming the field."""
        super().__post_init__()
        require(self, "order", self.order == "top-down", '"top-down": trees are binary')
        require(self, "context", self.context == "sentence", '"sentence": it reads no documents')

    def needed_bounds(self, corpus: PreparedCorpus) -> dict[str, NDArray[np.int16]]:
        """What any binary tree of each sentence may need: one that branches to one side has n - 1 open nonterminals."""
        most = np.maximum(np.diff(corpus.word_offsets) - 1, 1).astype(np.int16)
        return dict.fromkeys(self.bounds, most)
