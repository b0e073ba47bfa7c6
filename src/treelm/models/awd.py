"""The frame of AWD-LSTM (Merity, Keskar & Socher 2018) around recurrent layers: embedding, softmax, regularisers.

Shapes: T steps, B rows, E size of embeddings, H of the last layer, V tokens of the vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, TypeVar

import torch
from torch import Tensor, nn

from treelm.configs import Dropout, Positive, Size, Weight, configuration
from treelm.corpora.vocabulary import Vocabulary
from treelm.models.layers.dropout import dropout
from treelm.models.layers.recurrent import LSTMStack, embed_with_dropout, locked_dropout
from treelm.models.streams import StreamLM


@configuration
class AWDConfig:
    """Sizes, and regularisers, which do nothing at 0.

    Raises ``InputError`` for values that make no network.
    """

    embedding_size: Size = 400
    """Size of the embeddings, which the softmax shares, and of the last layer."""
    hidden_size: Size = 1150
    """Size of the other layers."""
    num_layers: Size = 3
    """Number of layers."""
    embedding_range: Positive = 0.1
    """Embeddings, which are the weights of the softmax too, are drawn uniformly between minus and plus this value,
    unless training starts from a run. 0.1 is the value of AWD-LSTM, which begins with SGD and a learning rate of 30;
    with Adam, 0.6 learned faster at first."""

    embedding_dropout: Dropout = 0.0
    """Dropout of whole tokens of the input embeddings, everywhere in a segment (e)."""
    input_dropout: Dropout = 0.0
    """Dropout of units of the embeddings, with one mask for each segment (i)."""
    layer_dropout: Dropout = 0.0
    """Dropout of units between layers, with one mask for each segment (h)."""
    output_dropout: Dropout = 0.0
    """Dropout of units of the last layer's output, with one mask for each segment (o)."""
    weight_dropout: Dropout = 0.0
    """Dropout of elements of the recurrent weights, with one mask for each segment (w)."""
    activation_penalty: Weight = 0.0
    """Weight of the mean square of the last layer's output after dropout (AR, alpha)."""
    difference_penalty: Weight = 0.0
    """Weight of the mean square of the last layer's differences between steps (TAR, beta)."""

    @property
    def sizes(self) -> tuple[int, ...]:
        """The size of the input, and that of the output of every layer."""
        return (self.embedding_size, *(self.hidden_size,) * (self.num_layers - 1), self.embedding_size)


Config = TypeVar("Config", bound=AWDConfig)


class AWDStreamLM(StreamLM, Generic[Config]):
    """A language model of embeddings, recurrent layers and a softmax whose weights are the embeddings.

    Subclasses add their layers, whose dropouts are their own, and implement ``init_state`` and ``forward``.
    """

    config: Config

    def __init__(self, config: Config, *, vocabulary: Vocabulary, labels: Sequence[str] = ()) -> None:
        """Draw the parameters from torch's global generator; biases of the softmax are 0."""
        super().__init__(vocabulary=vocabulary, labels=labels)
        self.config = config
        vocabulary_size = len(vocabulary) + 1
        drawn = torch.empty(vocabulary_size, config.embedding_size).uniform_(-1, 1)
        self.embedding = nn.Parameter(drawn * config.embedding_range)
        self.output_bias = nn.Parameter(torch.zeros(vocabulary_size))

    def embed(self, inputs: Tensor, *, locked: bool = True) -> Tensor:
        """Embeddings (T, B, E) of tokens (T, B); in training, whole tokens and units are dropped."""
        units = embed_with_dropout(inputs, self.embedding, self.config.embedding_dropout, training=self.training)
        drop = locked_dropout if locked else dropout
        return drop(units, self.config.input_dropout, training=self.training)

    def penalties(self, dropped: Tensor, raw: Tensor, mask: Tensor | None) -> dict[str, Tensor]:
        """The penalties AR and TAR (Merity et al. 2018, section 4.6) of the last layer; in evaluation there are none.

        AR is the mean square of its outputs after dropout, ``dropped`` (T, B, H), TAR that of the differences between
        steps before dropout, ``raw`` (T, B, H). Steps that ``mask`` (T, B) excludes are left out.
        """
        config, penalties = self.config, dict[str, Tensor]()
        if self.training and config.activation_penalty:
            kept = dropped if mask is None else dropped[mask]
            penalties["activation_penalty"] = config.activation_penalty * kept.pow(2).mean()
        if self.training and config.difference_penalty:
            steps = raw[1:] - raw[:-1]
            kept = steps if mask is None else steps[mask[1:]]
            mean = kept.pow(2).mean() if kept.numel() else kept.sum()
            penalties["difference_penalty"] = config.difference_penalty * mean
        return penalties

    def lstm_stack(self, *, locked: bool = True) -> LSTMStack:
        """LSTM layers with the dropouts of the config.

        Without ``locked``, units are dropped with a new mask at every step.
        """
        config = self.config
        return LSTMStack(
            config.sizes,
            between=config.layer_dropout,
            output=config.output_dropout,
            weight=config.weight_dropout,
            locked=locked,
        )
