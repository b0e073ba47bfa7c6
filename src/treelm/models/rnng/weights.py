"""The parameters of an RNNG as search uses them: grouped by what they multiply, copied only where needed."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from treelm.models.rnng.attention import AttentionComposition
from treelm.models.rnng.composition import Composition, LSTMComposition
from treelm.models.rnng.config import RNNGConfig
from treelm.models.search.rows import Affine, Bools


@dataclass(frozen=True)
class AttentionWeights:
    """Parameters of attention over children, besides its LSTM and its output layer."""

    label_query: Tensor  # (N, E)
    label_vector: Tensor  # (N, E)
    query: Affine
    gate: Affine

    @classmethod
    def of(cls, composition: AttentionComposition) -> AttentionWeights:
        """Name the parameters."""
        query, gate = Affine.of(composition.query.weight), affine(composition.gate)
        return cls(composition.label_query.detach(), composition.label_vector.detach(), query, gate)


@dataclass(frozen=True)
class SearchWeights:
    """Parameters that search needs of a model. E: size of vectors, H: of hidden states, A: actions, V: tokens."""

    config: RNNGConfig
    num_labels: int
    ends_word: Bools  # (V,)
    initial: Tensor  # (1, E)
    tokens: Tensor  # (V, E)
    labels: Tensor  # (N, E)
    vectors: Affine  # what a vector enters: the lowest stack layer and, with composition, its two directions
    deeper: tuple[Affine, ...]  # from the hidden state of the layer below, for layers 1, 2, ...; no bias
    hidden: tuple[Affine, ...]  # W_hh h + b of every layer
    output: Affine  # E from H, before its ReLU
    actions: Affine  # with some columns of zeros after the A of the actions
    words: Affine  # in tiny models with impossible tokens after the V
    composition: Composition
    composed: Affine | None  # the composition's output layer
    forward_hidden: Affine | None
    backward_hidden: Affine | None
    attention: AttentionWeights | None

    @property
    def num_actions(self) -> int:
        """Number of actions A."""
        return 2 + self.num_labels + (self.config.order == "in-order")

    @property
    def hidden_size(self) -> int:
        """Size of hidden states H."""
        return self.config.hidden_size

    @property
    def direction_size(self) -> int:
        """Units of each direction of the composition LSTM."""
        if isinstance(self.composition, (LSTMComposition, AttentionComposition)):
            return self.composition.forward_lstm.hidden_size
        return 0


def affine(layer: nn.Linear) -> Affine:
    """A linear layer as search multiplies by it."""
    return Affine.of(layer.weight, layer.bias)


def lstm_cell_(
    gates: Tensor, cell: Tensor, hidden_out: Tensor | None = None, cell_out: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """New hidden and cell state (n, H), written to the given rows if any; ``gates`` (n, 4H: i, f, o, g) are used up."""
    size = cell.shape[1]
    candidate = gates[:, 3 * size :].mul_(2)
    gates.sigmoid_()
    candidate.mul_(2).sub_(1)  # tanh(x) = 2 sigmoid(2x) - 1, several times faster than torch's tanh on a CPU
    sigmoids = gates[:, : 3 * size]
    new_cell = torch.mul(sigmoids[:, size : 2 * size], cell, out=cell_out)
    new_cell.addcmul_(sigmoids[:, :size], candidate)
    tanh_cell = torch.mul(new_cell, 2, out=candidate).sigmoid_().mul_(2).sub_(1)
    return torch.mul(sigmoids[:, 2 * size :], tanh_cell, out=hidden_out), new_cell
