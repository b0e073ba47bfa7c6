"""Sizes and regularisers of an LSTM language model."""

from __future__ import annotations

from dataclasses import dataclass

from treelm.models.layers.awd import AWDConfig


@dataclass(frozen=True, kw_only=True)
class LSTMConfig(AWDConfig):
    """A stack of LSTM layers; with all rates 0 a plain LSTM, with the defaults of the recipes AWD-LSTM."""

    tied: bool = True
    """Whether the softmax uses the embeddings as its weights; without, the last layer has the size of the others."""
    locked_dropout: bool = True
    """One mask of units for all steps of a segment; else one for every step."""

    @property
    def sizes(self) -> tuple[int, ...]:
        """Sizes of the input and of every layer's output."""
        return super().sizes if self.tied else (self.embedding_size, *(self.hidden_size,) * self.num_layers)
