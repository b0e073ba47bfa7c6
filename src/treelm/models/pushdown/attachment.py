"""The attachment head: which of the constituents on the stack a word closes, given the word (Section 3.2 of the paper).

    g_t = W_2 gelu(W_1 [h_{t-1}; e(w_t)] + b_1) + b_2               the word in its context
    logit(t attaches to j) = g_t . (K h_j + d[closed_j] + r[t - j]) / sqrt(D)      last tokens j of constituents
    logit(to itself)       = g_t . (o_t + r[0]) / sqrt(D),    o_t = W_4 gelu(W_3 [g_t; e(w_t)] + b_3) + b_4

The depth of j on the tape is the number of constituents that j closed, as long as j ends a constituent on the stack:
all that hold j end in it.

Shapes: n words, D units, R distances.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from treelm.models.layers.attention import start_normal


class AttachmentHead(nn.Module):
    """Vectors of words in their context, of constituents and of words by themselves, and tables for both."""

    def __init__(self, size: int, *, num_depths: int, num_distances: int) -> None:
        """Draw from torch's global generator."""
        super().__init__()
        self.scale = size**-0.5
        self.query_in, self.query_out = nn.Linear(2 * size, size), nn.Linear(size, size)
        self.own_in, self.own_out = nn.Linear(2 * size, size), nn.Linear(size, size)
        self.key = nn.Linear(size, size, bias=False)
        self.depths = nn.Parameter(torch.empty(num_depths, size))
        self.distances = nn.Parameter(torch.empty(num_distances, size))
        for linear in (self.query_in, self.query_out, self.own_in, self.own_out, self.key):
            start_normal(linear.weight)
            if linear.bias is not None:
                nn.init.zeros_(linear.bias)
        start_normal(self.depths)
        start_normal(self.distances)

    def queries(self, states: Tensor, vectors: Tensor) -> Tensor:
        """g (n, D) of words with these vectors, read after these hidden states, (n, D) both."""
        queries: Tensor = self.query_out(functional.gelu(self.query_in(torch.cat([states, vectors], 1))))
        return queries

    def own_keys(self, queries: Tensor, vectors: Tensor) -> Tensor:
        """o (n, D) of words with these vectors."""
        keys: Tensor = self.own_out(functional.gelu(self.own_in(torch.cat([queries, vectors], 1))))
        return keys

    def keys(self, states: Tensor, closed: Tensor) -> Tensor:
        """K h + d (n, D) of the constituents that end in positions with these hidden states, which closed (n,)."""
        keys: Tensor = self.key(states) + self.depths[closed.clamp(max=len(self.depths) - 1)]
        return keys
