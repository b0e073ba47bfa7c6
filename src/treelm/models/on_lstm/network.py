"""The ON-LSTM language model (Shen, Tan, Sordoni & Courville 2019), with the regularisers of AWD-LSTM.

The equations of a layer are in ``kernels.py``. The plain form is ``tests/models/on_lstm/plain.py``. Shapes: T steps, B
rows, H size of a layer's state.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from treelm.configs import Size, configuration, require
from treelm.corpora.vocabulary import Vocabulary
from treelm.models.awd import AWDConfig, AWDStreamLM
from treelm.models.layers.dropout import dropout
from treelm.models.layers.recurrent import locked_dropout
from treelm.models.on_lstm.kernels import ONLSTMLayer
from treelm.models.scores import SubwordAggregation
from treelm.models.stream_outputs import RecurrentState, StreamOutput
from treelm.models.streams import DistanceParser

Initialisation = Literal["uniform", "released"]
WeightScaling = Literal["training", "evaluation"]


@configuration
class ONLSTMConfig(AWDConfig):
    """Sizes, regularisers, and the layer that distances come from.

    Raises ``InputError`` for values that make no network.

    The default sizes are those of the paper for the Penn Treebank. ``weight_dropout`` applies to the recurrent weights
    of master gates too.
    """

    chunk_size: Size = 10
    """Units that share one master gate; it divides both sizes."""
    distance_layer: int = 2
    """The layer, from 1, whose master forget gates give the distances."""
    initialisation: Initialisation = "uniform"
    """Weights of the layers before training: all in +-1/sqrt(H), as is usual for LSTMs; or as in the public code
    (released), those of a layer's input in +-1/sqrt(I) and biases the sum of one of either range."""
    weight_scaling: WeightScaling = "training"
    """When recurrent weights are scaled for ``weight_dropout``: by 1 / (1 - w) in training, or by 1 - w in evaluation,
    as in the public code, where training takes those that stay as they are."""

    def __post_init__(self) -> None:
        """Check values."""
        for name in ("embedding_size", "hidden_size"):
            is_multiple = getattr(self, name) % self.chunk_size == 0
            require(self, name, is_multiple, f"a multiple of chunk_size = {self.chunk_size}")
        require(self, "distance_layer", 1 <= self.distance_layer <= self.num_layers, f"1 to {self.num_layers}")


class ONLSTM(AWDStreamLM[ONLSTMConfig], DistanceParser):
    """Embedding, ON-LSTM layers, softmax over the tied embedding; distances from the master forget gates of a layer."""

    system: ClassVar[str] = "on-lstm"

    def __init__(self, config: ONLSTMConfig, *, vocabulary: Vocabulary, labels: Sequence[str] = ()) -> None:
        """Draw the parameters from torch's global generator."""
        super().__init__(config, vocabulary=vocabulary, labels=labels)
        self.layers = nn.ModuleList(
            ONLSTMLayer(size, following, config.chunk_size) for size, following in pairwise(config.sizes)
        )
        if config.initialisation == "released":
            for layer in self.layers:
                assert isinstance(layer, ONLSTMLayer)
                layer.draw_as_released()

    @property
    def word_columns(self) -> dict[str, SubwordAggregation]:
        """The distance before every word."""
        return {"distance": "first"}

    def init_state(self, num_rows: int) -> RecurrentState:
        """The zero state: ``hidden.0``, ``cell.0`` and so on, (B, H) each."""
        sizes = self.config.sizes[1:]
        names = [(kind, index) for kind in ("hidden", "cell") for index in range(len(sizes))]
        return {f"{kind}.{index}": self.embedding.new_zeros(num_rows, sizes[index]) for kind, index in names}

    def forward(self, inputs: Tensor, carried: RecurrentState, *, mask: Tensor | None = None) -> StreamOutput:
        """Read tokens (T, B); in training, all dropouts draw new masks.

        ``structure`` has ``distances`` (T, B) of the layer that the config names and ``all_distances``
        (T, B, num_layers).
        """
        config, training = self.config, self.training
        units = self.embed(inputs)
        following, distances, raw = {}, [], list[Tensor]()
        for index, layer in enumerate(self.layers):
            assert isinstance(layer, ONLSTMLayer)
            recurrent = dropout(layer.weights.weight_hidden, config.weight_dropout, training=training, shared=True)
            if config.weight_scaling == "evaluation":
                recurrent = recurrent * (1 - config.weight_dropout)
            before = carried[f"hidden.{index}"], carried[f"cell.{index}"]
            outputs, (hidden, cell), found = layer(units, before, weight_hidden=recurrent)
            raw.append(outputs)
            following.update({f"hidden.{index}": hidden, f"cell.{index}": cell})
            distances.append(found)
            is_last = index == len(self.layers) - 1
            units = locked_dropout(
                outputs, config.output_dropout if is_last else config.layer_dropout, training=training
            )
        chosen = distances[config.distance_layer - 1]
        structure = {"distances": chosen, "all_distances": torch.stack(distances, 2)}
        penalties = self.penalties(units, raw[-1], mask)
        return StreamOutput(
            outputs=units, carried=following, regularisers=penalties, structure=structure, below=raw[:-1]
        )
