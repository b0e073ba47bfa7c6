"""What a document said before a sentence, read by an LSTM into one vector: what the sentence begins from.

The tokens before a sentence are known when it is read, whatever the model is: so probabilities of the sentence given
them are a distribution for any function of theirs, and here it is the same one in every system. Tokens may be too many
to be read before each sentence anew, so their number has a bound, in training and in reading alike.

Shapes: B sentences, E size of a token's vector, H of the LSTM's state, V tokens (V is the end of a sentence).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from treelm.corpora.batches import SentenceBatch
from treelm.models.layers.devices import plan_to_device
from treelm.models.layers.dropout import dropout
from treelm.models.layers.levels import schedule_levels
from treelm.models.layers.lstm import LSTMWeights, Predecessors, plan_tree, sweep_lstm
from treelm.models.layers.precision import linear

IntArray = NDArray[np.int64]


class _Plan(NamedTuple):
    """n tokens before B sentences, ready for computing."""

    tree: Predecessors  # the token right before every token
    types: Tensor  # (m,) different tokens
    read: Tensor  # (n,) which of them each token is
    last: Tensor  # of each sentence with tokens before it, the last one
    sentences: Tensor  # the numbers of these sentences


class DocumentEncoder(nn.Module):
    """d = W drop(h) + b, with h the last state of an LSTM over the vectors of the tokens before a sentence.

    It is added to the vector that the sentence begins from. Before the first sentence of a document nothing was read,
    and d is 0.
    """

    def __init__(self, end: int, embedding_size: int, hidden_size: int, *, dropout: float) -> None:
        """Draw from torch's global generator. ``end`` is V; dropout that of the LSTM's inputs and of its last state."""
        super().__init__()
        self.end, self.dropout = end, dropout
        self.end_embedding = nn.Parameter(torch.zeros(embedding_size))
        self.lstm = LSTMWeights(embedding_size, hidden_size)
        self.output = nn.Linear(hidden_size, embedding_size)
        nn.init.zeros_(self.output.bias)

    def forward(self, embedding: Tensor, tokens: IntArray, offsets: IntArray) -> Tensor:
        """The vectors d (B, E) of sentences before which ``tokens[offsets[b]:offsets[b + 1]]`` stand.

        ``embedding`` (V or more, E) has the vectors of the tokens.
        """
        lengths = np.diff(offsets)
        found = np.flatnonzero(lengths)
        if len(found) == 0:
            return self.end_embedding.new_zeros(len(lengths), len(self.end_embedding))
        levels = np.arange(len(tokens)) - np.repeat(offsets[:-1], lengths)
        schedule = schedule_levels(levels)  # those of one level stand in the order of sentences
        order, position = schedule.order, schedule.position
        tree = plan_tree(position[order[len(found) :] - 1], schedule.offsets, embedding.device)
        types, read = np.unique(tokens[order], return_inverse=True)
        arrays = types, read, position[offsets[1:][found] - 1], found
        plan = plan_to_device(_Plan(tree, *map(torch.from_numpy, arrays)), embedding.device)
        hidden = sweep_lstm(self._vectors(embedding, plan.types), self.lstm, plan.tree, plan.read)
        summary = self._drop(hidden.index_select(0, plan.last))
        out = linear(summary, self.output.weight, self.output.bias)
        return out.new_zeros(len(lengths), out.shape[1]).index_copy(0, plan.sentences, out)

    def of_batch(self, embedding: Tensor, batch: SentenceBatch) -> Tensor | None:
        """The vectors d of a batch, or None if it does not say what precedes its sentences: then nothing does."""
        if batch.preceding is None or batch.preceding_offsets is None:
            return None
        return self(embedding, batch.preceding, batch.preceding_offsets)  # type: ignore[no-any-return]

    def _vectors(self, embedding: Tensor, tokens: Tensor) -> Tensor:
        """The vectors of tokens (n,), ends among them."""
        vectors = embedding.index_select(0, tokens.clamp(max=self.end - 1)).to(self.end_embedding.dtype)
        is_end = (tokens == self.end)[:, None]
        return self._drop(torch.where(is_end, self.end_embedding, vectors))

    def _drop(self, units: Tensor) -> Tensor:
        return dropout(units, self.dropout, training=self.training)
