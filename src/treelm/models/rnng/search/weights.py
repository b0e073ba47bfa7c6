"""The parameters of an RNNG laid out for search: transposed, contiguous, and grouped by what they multiply."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from treelm.models.layers.lstm import LSTMWeights
from treelm.models.rnng.composition import AttentionComposition, Composition, LSTMComposition, NoComposition
from treelm.models.rnng.config import RNNGConfig
from treelm.models.rnng.search.rows import Bools

if TYPE_CHECKING:
    from treelm.models.rnng.network import RNNG


@dataclass(frozen=True)
class Affine:
    """x -> x W^T + b, with W^T (I, O) contiguous."""

    weight: Tensor
    bias: Tensor

    @classmethod
    def of(cls, weight: Tensor, bias: Tensor | None = None) -> Affine:
        """From a weight (O, I) as torch keeps it; no bias is a zero bias."""
        bias = weight.new_zeros(len(weight)) if bias is None else bias
        return cls(weight.detach().T.contiguous(), bias.detach())

    def __call__(self, rows: Tensor, out: Tensor | None = None) -> Tensor:
        """The product for padded rows (see ``rows.rounded``)."""
        return torch.addmm(self.bias, rows, self.weight, out=out)


@dataclass(frozen=True)
class SearchWeights:
    """What search needs of a model. E: size of vectors, H: of hidden states, A: actions, V: symbols."""

    config: RNNGConfig
    num_labels: int
    ends_word: Bools  # (V,)
    initial: Tensor  # (1, E)
    symbols: Tensor  # (V, E)
    labels: Tensor  # (N, E)
    vectors: Affine  # what a vector enters: the lowest stack layer and, with composition, its two directions
    deeper: tuple[Affine, ...]  # from the hidden state of the layer below, for layers 1, 2, ...; no bias
    hidden: tuple[Affine, ...]  # W_hh h + b of every layer
    output: Affine  # E from H, before its ReLU
    actions: Affine
    words: Affine
    composition: Composition
    forward_hidden: Affine | None
    backward_hidden: Affine | None

    @classmethod
    def of(cls, model: RNNG) -> SearchWeights:
        """Copy and lay out a model's parameters."""
        layers, composition = model.stack_layers, model.composition
        directions: list[LSTMWeights] = []
        if not isinstance(composition, NoComposition):
            directions = [composition.forward_lstm, composition.backward_lstm]
        inputs = [layers[0].weight_input, *(lstm.weight_input for lstm in directions)]
        biases = [torch.zeros_like(layers[0].bias), *(lstm.bias for lstm in directions)]
        recurrent = [Affine.of(lstm.weight_hidden) for lstm in directions]
        return cls(
            config=model.config,
            num_labels=len(model.labels),
            ends_word=np.asarray(model.vocabulary.ends_word),
            initial=model.initial_embedding.detach()[None],
            symbols=model.word_embedding.detach(),
            labels=model.label_embedding.detach(),
            vectors=Affine.of(torch.cat(inputs), torch.cat(biases)),
            deeper=tuple(Affine.of(lstm.weight_input) for lstm in layers[1:]),
            hidden=tuple(Affine.of(lstm.weight_hidden, lstm.bias) for lstm in layers),
            output=Affine.of(model.output.weight, model.output.bias),
            actions=Affine.of(model.action_head.weight, model.action_head.bias),
            words=Affine.of(model.word_embedding, model.word_bias),
            composition=composition,
            forward_hidden=recurrent[0] if recurrent else None,
            backward_hidden=recurrent[1] if recurrent else None,
        )

    @property
    def hidden_size(self) -> int:
        """H."""
        return self.config.hidden_size

    @property
    def direction_size(self) -> int:
        """Units of each direction of the composition LSTM."""
        if isinstance(self.composition, (LSTMComposition, AttentionComposition)):
            return self.composition.forward_lstm.hidden_size
        return 0


def lstm_cell_(
    gates: Tensor, cell: Tensor, hidden_out: Tensor | None = None, cell_out: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """New hidden and cell state (n, H), written to the given rows if any; ``gates`` (n, 4H: i, f, o, g) are used up."""
    size = cell.shape[1]
    sigmoids = gates[:, : 3 * size].sigmoid_()
    candidate = gates[:, 3 * size :].tanh_()
    new_cell = torch.mul(sigmoids[:, size : 2 * size], cell, out=cell_out)
    new_cell.addcmul_(sigmoids[:, :size], candidate)
    tanh_cell = torch.tanh(new_cell, out=candidate)
    return torch.mul(sigmoids[:, 2 * size :], tanh_cell, out=hidden_out), new_cell
