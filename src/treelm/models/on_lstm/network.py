"""The ON-LSTM language model (Shen, Tan, Sordoni & Courville 2019), with the regularisers of AWD-LSTM."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import ClassVar

import torch
from torch import Tensor, nn

from treelm.corpora.vocabulary import Vocabulary
from treelm.models.layers.dropout import dropout
from treelm.models.layers.recurrent import activation_penalties, embed_with_dropout, locked_dropout
from treelm.models.on_lstm.config import ONLSTMConfig
from treelm.models.on_lstm.layer import ONLSTMLayer
from treelm.models.readings import Carried, Reading
from treelm.models.scores import Gathering
from treelm.models.streams import StreamLM

_INITIAL_RANGE = 0.1


class ONLSTM(StreamLM):
    """Embedding, ON-LSTM layers, softmax over the tied embedding; distances from the master forget gates of a layer."""

    system: ClassVar[str] = "on-lstm"
    benchmark_recipe: ClassVar[str] = "on-lstm-ptb"

    def __init__(self, config: ONLSTMConfig, *, vocabulary: Vocabulary, labels: Sequence[str] = ()) -> None:
        """Draw the parameters from torch's global generator: embeddings from U(-0.1, 0.1), biases of the softmax 0."""
        super().__init__(vocabulary=vocabulary, labels=labels)
        self._config = config
        num_symbols = len(vocabulary) + 1
        self.embedding = nn.Parameter(torch.empty(num_symbols, config.embedding_size).uniform_(-1, 1) * _INITIAL_RANGE)
        self.output_bias = nn.Parameter(torch.zeros(num_symbols))
        self.layers = nn.ModuleList(
            ONLSTMLayer(size, following, config.chunk_size) for size, following in pairwise(config.sizes)
        )

    @property
    def config(self) -> ONLSTMConfig:
        """Sizes, regularisers, and the layer that distances come from."""
        return self._config

    @property
    def word_columns(self) -> dict[str, Gathering]:
        """The distance before every word."""
        return {"distance": "first"}

    @property
    def decoder_weight(self) -> Tensor:
        """(V + 1, E): the embeddings."""
        return self.embedding

    @property
    def decoder_bias(self) -> Tensor:
        """(V + 1,)."""
        return self.output_bias

    def begin(self, num_rows: int) -> Carried:
        """The zero state: ``hidden.0``, ``cell.0`` and so on, (B, H) each."""
        sizes = self.config.sizes[1:]
        names = [(kind, index) for kind in ("hidden", "cell") for index in range(len(sizes))]
        return {f"{kind}.{index}": self.embedding.new_zeros(num_rows, sizes[index]) for kind, index in names}

    def read(self, inputs: Tensor, carried: Carried, *, mask: Tensor | None = None) -> Reading:
        """Read symbols (T, B); in training, all dropouts draw new masks.

        ``structure`` has ``distances`` (T, B) of the layer that the config names and ``all_distances``
        (T, B, num_layers).
        """
        config, training = self.config, self.training
        units = embed_with_dropout(inputs, self.embedding, config.embedding_dropout, training=training)
        units = locked_dropout(units, config.input_dropout, training=training)
        following, distances, raw = {}, [], units
        for index, layer in enumerate(self.layers):
            assert isinstance(layer, ONLSTMLayer)
            recurrent = dropout(layer.weights.weight_hidden, config.weight_dropout, training=training, shared=True)
            before = carried[f"hidden.{index}"], carried[f"cell.{index}"]
            raw, (hidden, cell), found = layer(units, before, weight_hidden=recurrent)
            following.update({f"hidden.{index}": hidden, f"cell.{index}": cell})
            distances.append(found)
            is_last = index == len(self.layers) - 1
            units = locked_dropout(raw, config.output_dropout if is_last else config.layer_dropout, training=training)
        penalties: dict[str, Tensor] = {}
        if training:
            penalties = activation_penalties(
                units, raw, mask, activation=config.activation_penalty, difference=config.difference_penalty
            )
        chosen = distances[config.distance_layer - 1]
        structure = {"distances": chosen, "all_distances": torch.stack(distances, 2)}
        return Reading(outputs=units, carried=following, regularisers=penalties, structure=structure)
