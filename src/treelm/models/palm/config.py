"""Sizes, regularisers and variants of PaLM."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from treelm.configs import Size, Weight, configuration, require
from treelm.models.awd import AWDConfig

Attention = Literal["learned", "right", "left", "given"]
Objective = Literal["joint", "spans"]
Initialisation = Literal["uniform", "released"]


@configuration
class PaLMConfig(AWDConfig):
    """AWD-LSTM with attention over the spans that end before each token.

    PaLM-U is the default; PaLM-S has ``span_weight``, PaLM-RB ``attention = "right"``. Sizes are those of the public
    code for the Penn Treebank. Raises ``InputError`` for values that make no network.
    """

    retired: ClassVar[Mapping[str, Any]] = {"stop_at_end": False, "without_gold": "none"}
    hidden_size: int = 1020
    """Size of the other layers."""

    attention_layer: int = 2
    """The layer, from 1, after which the attention stands."""
    rational_size: Size = 200
    """Size of the rational RNN, each direction; the context has both."""
    scorer_size: Size = 100
    """Hidden units of the scorer of spans."""
    residual_size: Size = 400
    """Hidden units of what joins context and hidden state (Eq. 6)."""
    max_span: Size = 20
    """Tokens of the longest span that is attended to (m)."""
    initialisation: Initialisation = "uniform"
    """Weights before training: uniform, as AWD-LSTM's, with ``embedding_range``; or as in the public code (released),
    which has a range of its own."""

    attention: Attention = "learned"
    """Source of the weights of spans: learned, by fixed scores m, m - 1, ..., 1 from the longest span to the
    shortest (right) or the other way round (left), or the trees that come with the data (given)."""
    span_weight: Weight = 0.0
    """Weight of the cross-entropy to the spans that are gold constituents (lambda; 0.01 in PaLM-S)."""
    objective: Objective = "joint"
    """Loss that training minimises: words and, weighted, spans; or spans alone, to pretrain the attention."""

    def __post_init__(self) -> None:
        """Check values."""
        if self.initialisation == "released":
            usual = AWDConfig.embedding_range
            remedy = (
                f"{usual}, or initialisation = 'uniform': the public code's range follows from the embeddings' size"
            )
            require(self, "embedding_range", self.embedding_range == usual, remedy)
        require(self, "attention_layer", 1 <= self.attention_layer <= self.num_layers, f"1 to {self.num_layers}")
        if self.attention != "learned":
            require(self, "span_weight", self.span_weight == 0, f"0: attention = {self.attention!r} learns nothing")
            require(self, "objective", self.objective == "joint", f"'joint': attention = {self.attention!r}")

    @property
    def context_size(self) -> int:
        """Size of the context vector, which has both directions of the rational RNN."""
        return 2 * self.rational_size

    @property
    def is_supervised(self) -> bool:
        """Whether the training loss depends on gold trees."""
        return self.span_weight > 0 or self.objective == "spans"
