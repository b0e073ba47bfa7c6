"""Composition of a closed constituent into one vector: by an LSTM, by attention, or not at all.

An example, top-down: (S the dog) is built by four actions. ``e`` are vectors; the stack is shown left to right.

    action      stack            vector that it pushes
    NT(S)       [S               e_S, of the label
    SHIFT       [S the           e_the
    SHIFT       [S the dog       e_dog
    REDUCE      [S]              composed from S, the, dog; it takes the place of all three

By an LSTM, f is the last state of a forward LSTM over e_S, e_the, e_dog, g that of a backward LSTM over e_S, e_dog,
e_the, and the vector is ReLU(W drop([f; g]) + b). By attention, two LSTMs of half the size read the children alone, and
the state of the stack before the REDUCE says how much each of their states h_the, h_dog counts. Without composition
REDUCE pushes e_REDUCE, and S, the, dog stay below it.

LSTM composition needs nothing but the children, so it is computed for a whole batch before the stack (``kernels.py``);
attention needs the stack and is computed with it (``attention.py``). The classes here hold parameters only.
"""

from __future__ import annotations

import torch
from torch import nn

from treelm.models.layers.lstm import LSTMWeights
from treelm.models.rnng.config import EMBEDDING_DEVIATION


class LSTMComposition(nn.Module):
    """e = ReLU(W drop([f; g]) + b): a bidirectional LSTM over the label and the children (Dyer et al. 2016, Sec. 3.4).

    ``kernels.py`` computes it. The forward LSTM reads NT, c_1 ... c_n, and f is its last state; the backward LSTM reads
    NT, c_n ... c_1, and g is its last state.
    """

    def __init__(self, embedding_size: int) -> None:
        """Draw the parameters for vectors of size E."""
        super().__init__()
        self.forward_lstm = LSTMWeights(embedding_size, embedding_size)
        self.backward_lstm = LSTMWeights(embedding_size, embedding_size)
        self.output = nn.Linear(2 * embedding_size, embedding_size)  # W, b: (2E) -> (E)


class AttentionComposition(nn.Module):
    """Gated attention over the children (Kuncoro et al. 2017, Sec. 4), which ``attention.py`` computes.

    h_i is the state at child i of a bidirectional LSTM over the children, E/2 units a direction; with the stack summary
    s (the network's output before the REDUCE) and per-label vectors o and t:
    a = softmax_i(h_i . V^T [o; s]); m = drop(sum_i a_i h_i); g = sigmoid(W_g [drop(t); m] + b_g);
    e = ReLU(W (g * drop(t) + (1 - g) * m) + b).
    """

    def __init__(self, embedding_size: int, num_labels: int) -> None:
        """Draw the parameters for vectors of size E, which must be even."""
        super().__init__()
        self.forward_lstm = LSTMWeights(embedding_size, embedding_size // 2)
        self.backward_lstm = LSTMWeights(embedding_size, embedding_size // 2)
        self.label_query = nn.Parameter(torch.empty(num_labels, embedding_size))  # o: (labels, E)
        self.label_vector = nn.Parameter(torch.empty(num_labels, embedding_size))  # t: (labels, E)
        self.query = nn.Linear(2 * embedding_size, embedding_size, bias=False)  # V^T: (2E) -> (E)
        self.gate = nn.Linear(2 * embedding_size, embedding_size)  # W_g, b_g: (2E) -> (E)
        self.output = nn.Linear(embedding_size, embedding_size)  # W, b: (E) -> (E)
        for table in (self.label_query, self.label_vector):
            nn.init.normal_(table, std=EMBEDDING_DEVIATION)


class NoComposition(nn.Module):
    """The action LSTM: REDUCE has an embedding; nothing is popped, so the stack is the history of all actions."""

    def __init__(self, embedding_size: int) -> None:
        """Draw the parameters for vectors of size E."""
        super().__init__()
        self.reduce_embedding = nn.Parameter(torch.empty(embedding_size))
        nn.init.normal_(self.reduce_embedding, std=EMBEDDING_DEVIATION)


Composition = LSTMComposition | AttentionComposition | NoComposition
