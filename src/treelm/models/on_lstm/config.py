"""Sizes and regularisers of an ON-LSTM language model."""

from __future__ import annotations

from dataclasses import dataclass

from treelm.models.layers.awd import AWDConfig


@dataclass(frozen=True, kw_only=True)
class ONLSTMConfig(AWDConfig):
    """Sizes, regularisers, and the layer that distances come from.

    Raises ``InputError`` for values that make no network.

    The sizes are those of the paper for the Penn Treebank. Weights of master gates are dropped as other recurrent ones.
    """

    chunk_size: int = 10
    """Units that share one master gate; it divides both sizes."""
    distance_layer: int = 2
    """The layer, from 1, whose master forget gates give the distances."""

    def __post_init__(self) -> None:
        """Check values."""
        super().__post_init__()
        self.require_at_least(1, "chunk_size")
        for name in ("embedding_size", "hidden_size"):
            is_multiple = getattr(self, name) % self.chunk_size == 0
            self.require(name, is_multiple, f"a multiple of chunk_size = {self.chunk_size}")
        self.require("distance_layer", 1 <= self.distance_layer <= self.num_layers, f"1 to {self.num_layers}")
