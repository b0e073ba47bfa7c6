"""The LSTM language model; with its regularisers, AWD-LSTM (Merity, Keskar & Socher 2018)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn

from treelm.corpora.vocabulary import Vocabulary
from treelm.models.layers.dropout import dropout
from treelm.models.layers.recurrent import (
    LSTMStack,
    StackDropout,
    activation_penalties,
    embed_with_dropout,
    locked_dropout,
)
from treelm.models.lstm.config import LSTMConfig
from treelm.models.readings import Carried, Reading
from treelm.models.streams import StreamLM

_INITIAL_RANGE = 0.1


class LSTM(StreamLM):
    """Embedding, LSTM layers, softmax. It has no trees."""

    system: ClassVar[str] = "lstm"
    benchmark_recipe: ClassVar[str] = "awd-lstm-ptb"
    parses = False

    def __init__(self, config: LSTMConfig, *, vocabulary: Vocabulary, labels: Sequence[str] = ()) -> None:
        """Draw the parameters from torch's global generator: embeddings from U(-0.1, 0.1), biases of the softmax 0."""
        super().__init__(vocabulary=vocabulary, labels=labels)
        self._config = config
        num_symbols = len(vocabulary) + 1
        self.embedding = nn.Parameter(torch.empty(num_symbols, config.embedding_size).uniform_(-1, 1) * _INITIAL_RANGE)
        self.output_bias = nn.Parameter(torch.zeros(num_symbols))
        self.output_weight: nn.Parameter | None = None
        if not config.tied:
            weight = torch.empty(num_symbols, config.sizes[-1]).uniform_(-_INITIAL_RANGE, _INITIAL_RANGE)
            self.output_weight = nn.Parameter(weight)
        rates = StackDropout(
            between=config.layer_dropout,
            output=config.output_dropout,
            weight=config.weight_dropout,
            locked=config.locked_dropout,
        )
        self.stack = LSTMStack(config.sizes, rates)

    @property
    def config(self) -> LSTMConfig:
        """Sizes and regularisers."""
        return self._config

    @property
    def decoder_weight(self) -> Tensor:
        """(V + 1, E): the embeddings, if tied."""
        return self.embedding if self.output_weight is None else self.output_weight

    @property
    def decoder_bias(self) -> Tensor:
        """(V + 1,)."""
        return self.output_bias

    def begin(self, num_rows: int) -> Carried:
        """The zero state: ``hidden.0``, ``cell.0`` and so on, (B, H) each."""
        return self.stack.begin(num_rows, self.embedding)

    def read(self, inputs: Tensor, carried: Carried, *, mask: Tensor | None = None) -> Reading:
        """Read symbols (T, B). In training, all dropouts draw new masks."""
        config = self.config
        vectors = embed_with_dropout(inputs, self.embedding, config.embedding_dropout, training=self.training)
        drop = locked_dropout if config.locked_dropout else dropout
        vectors = drop(vectors, config.input_dropout, training=self.training)
        dropped, raw, following = self.stack(vectors, carried)
        penalties: dict[str, Tensor] = {}
        if self.training:
            penalties = activation_penalties(
                dropped, raw, mask, activation=config.activation_penalty, difference=config.difference_penalty
            )
        return Reading(outputs=dropped, carried=following, regularisers=penalties)
