"""Sizes, regularisers and variants of PaLM."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

from treelm.errors import InputError

Attention = Literal["learned", "right", "left", "given"]
Objective = Literal["joint", "spans"]
WithoutGold = Literal["none", "shortest"]


@dataclass(frozen=True, kw_only=True)
class PaLMConfig:
    """AWD-LSTM with attention over the spans that end before each symbol.

    PaLM-U is the default; PaLM-S has ``span_weight``, PaLM-RB ``attention = "right"``. Sizes are those of the public
    code for the Penn Treebank. Raises ``InputError`` for values that make no network.
    """

    embedding_size: int = 400
    """Size of embeddings, which are tied, and of the last layer."""
    hidden_size: int = 1020
    """Size of the other layers."""
    num_layers: int = 3
    """LSTM layers on top of each other."""

    attention_layer: int = 2
    """The layer, from 1, after which the attention stands."""
    rational_size: int = 200
    """Size of the rational RNN, each direction; the context has both."""
    scorer_size: int = 100
    """Hidden units of the scorer of spans."""
    residual_size: int = 400
    """Hidden units of what joins context and hidden state (Eq. 6)."""
    max_span: int = 20
    """Symbols of the longest span that is attended to (m)."""
    stop_at_end: bool = False
    """Whether spans end at sentence ends; else they may go across, as in the paper."""

    attention: Attention = "learned"
    """Where the weights of spans come from: learned, by fixed scores m, m - 1, ..., 1 from the longest span to the
    shortest (right) or the other way round (left), or the trees that come with the data (given)."""
    span_weight: float = 0.0
    """Weight of the cross-entropy to the spans that are gold constituents (lambda; 0.01 in PaLM-S)."""
    objective: Objective = "joint"
    """What training minimises: words and, weighted, spans; or spans alone, to pretrain the attention."""
    without_gold: WithoutGold = "none"
    """What the attention is taught where no gold constituent ends: nothing, or the shortest span."""

    embedding_dropout: float = 0.0
    """Whole symbols of the input embeddings, everywhere in a segment (e)."""
    input_dropout: float = 0.0
    """Units of the embeddings (i)."""
    layer_dropout: float = 0.0
    """Units between layers, of the context and of what is made of it (h, vertical)."""
    output_dropout: float = 0.0
    """Units of the last layer's output (o)."""
    weight_dropout: float = 0.0
    """Elements of the recurrent weights of the LSTM, one mask a segment (w)."""
    activation_penalty: float = 0.0
    """Weight of the mean square of the last layer's output after dropout (AR, alpha)."""
    difference_penalty: float = 0.0
    """Weight of the mean square of the last layer's differences between steps (TAR, beta)."""

    def __post_init__(self) -> None:
        """Check values."""
        sizes = ("embedding_size", "hidden_size", "num_layers", "rational_size", "scorer_size", "residual_size")
        for name in (*sizes, "max_span"):
            self._require(name, getattr(self, name) >= 1, "1 or more")
        for name in ("embedding_dropout", "input_dropout", "layer_dropout", "output_dropout", "weight_dropout"):
            self._require(name, 0 <= getattr(self, name) < 1, "a number from 0 and below 1")
        for name in ("activation_penalty", "difference_penalty", "span_weight"):
            self._require(name, 0 <= getattr(self, name) < math.inf, "a finite number, 0 or more")
        for name, kind in (("attention", Attention), ("objective", Objective), ("without_gold", WithoutGold)):
            self._require(name, getattr(self, name) in get_args(kind), " or ".join(get_args(kind)))
        self._require("attention_layer", 1 <= self.attention_layer <= self.num_layers, f"1 to {self.num_layers}")
        if self.attention != "learned":
            self._require("span_weight", self.span_weight == 0, f"0: attention = {self.attention!r} learns nothing")
            self._require("objective", self.objective == "joint", f"'joint': attention = {self.attention!r}")
        if not self.is_supervised:
            remedy = "'none', or what teaches the attention: span_weight above 0, or objective = 'spans'"
            self._require("without_gold", self.without_gold == "none", remedy)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Sizes of the input and of every LSTM layer's output."""
        return (self.embedding_size, *(self.hidden_size,) * (self.num_layers - 1), self.embedding_size)

    @property
    def is_supervised(self) -> bool:
        """Whether training needs gold trees for its loss."""
        return self.span_weight > 0 or self.objective == "spans"

    def _require(self, name: str, is_valid: bool, remedy: str) -> None:
        if not is_valid:
            raise InputError(f"{name} is {getattr(self, name)!r}", where="[model]", remedy=f"give {remedy}")
