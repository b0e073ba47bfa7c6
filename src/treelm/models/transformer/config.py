"""Sizes and positions of the Transformer."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from treelm.configs import Dropout, Number, Size, Weight, configuration, require

Auxiliary = Literal["none", "treereg", "tree-planting"]
Positions = Literal["relative", "learned", "rotary"]


@configuration
class TransformerConfig:
    """A stack of pre-norm blocks over tied embeddings. Raises ``InputError`` for values that make no network."""

    inference_overrides: ClassVar[tuple[str, ...]] = ("memory_length", "sink_tokens")
    """Fields that no weight depends on: ``reading`` in ``config.json`` may override them for a trained model."""

    size: Size = 256
    """Units of embeddings and of every layer (D); the feed-forward nets are four times as wide."""
    num_layers: Size = 4
    """Blocks on top of each other (N)."""
    num_heads: Size = 4
    """Heads of attention of each layer (H), which share the units."""
    dropout: Dropout = 0.1
    """Dropout of embeddings, of what each half of a block adds, and of hidden states before the softmax."""

    positions: Positions = "relative"
    """``relative``: each layer has a table of keys, one for each distance (Dai et al. 2019). ``learned``: a vector for
    each place, added to the embeddings (GPT-2). ``rotary``: queries and keys are turned by places (Su et al. 2021).
    """
    max_distance: Size = 63
    """Distances above this one share its key (relative)."""
    max_length: Size = 1024
    """Places that have a vector (learned): tokens of the longest sentence or segment, its start included."""
    memory_length: Number = 0
    """Tokens before itself that a token sees, also those of the segments before (M, Transformer-XL). 0: all of its
    sentence or segment, and nothing of the one before."""
    sink_tokens: Number = 0
    """First tokens of a sentence or a stream that every token sees besides its memory, however far away (Xiao et al.
    2024): they receive the attention that is needed nowhere else, and without them probabilities become worse."""

    auxiliary: Auxiliary = "none"
    """Second loss, in training, from gold trees: ``treereg`` (Nandi et al. 2024), by whose scores it then parses, or
    ``tree-planting`` (Yoshida et al. 2024)."""
    auxiliary_weight: Weight = 1.0
    """Weight of the second loss."""
    auxiliary_share: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Share of updates that have the second loss, drawn at random; the papers' "every 10 steps" is 0.1."""
    treereg_layer: int = 3
    """Layer, from 1, whose outputs TreeReg uses."""
    treereg_units: int = 64
    """Units of that layer, the first ones, that it uses."""

    def __post_init__(self) -> None:
        """Check values."""
        require(self, "num_heads", self.size % self.num_heads == 0, f"a divisor of size = {self.size}")
        if self.positions == "rotary":
            remedy = f"one that leaves each head of size = {self.size} an even number of units"
            require(self, "num_heads", self.size // self.num_heads % 2 == 0, remedy)
        if self.memory_length:
            remedy = "'relative' or 'rotary', or set memory_length = 0: places of segments before have no vectors"
            require(self, "positions", self.positions != "learned", remedy)
        if self.sink_tokens:
            remedy = "'relative', or set sink_tokens = 0: only there do all great distances share a key"
            require(self, "positions", self.positions == "relative", remedy)
            most = self.memory_length
            require(self, "sink_tokens", self.sink_tokens <= most, f"at most memory_length = {most}")
        if self.auxiliary != "none":
            remedy = "0: a second loss is of whole sentences"
            require(self, "memory_length", self.memory_length == 0, remedy)
        if self.auxiliary == "treereg":
            require(self, "treereg_layer", 1 <= self.treereg_layer <= self.num_layers, f"1 to {self.num_layers}")
            require(self, "treereg_units", 1 <= self.treereg_units <= self.size, f"1 to {self.size}")
