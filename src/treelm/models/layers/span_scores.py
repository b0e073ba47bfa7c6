"""Scores of the spans of a sentence that an LSTM reads from both ends (Stern et al. 2017; Kitaev & Klein 2018).

Shapes: B sentences of one length n, spans (i, j) of words i to j - 1, H units of the LSTM in one direction.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from treelm.corpora.arrays import gather_indices, offsets_of
from treelm.corpora.encoding import SentenceBatch
from treelm.errors import InputError
from treelm.models.layers import dropout as dropouts
from treelm.models.layers.precision import lstm_states

_MOST_HIDDEN = 1 << 23  # most numbers of the hidden layer that are computed at once without gradient


class SpanScorer(nn.Module):
    """s(i, j) = W2 relu(LN(W1 f_j - W1 f_i)), for every span i < j.

    W1 is applied to fenceposts, which takes n + 1 products instead of one for each span. Its bias would cancel.
    """

    def __init__(self, input_size: int, hidden_size: int, num_scores: int, *, bias: bool = True) -> None:
        """Draw the parameters as torch's layers do. The ``bias`` of a single score would cancel in binary trees."""
        super().__init__()
        self.fencepost = nn.Linear(input_size, hidden_size, bias=False)
        self.norm = nn.LayerNorm(hidden_size)
        self.score = nn.Linear(hidden_size, num_scores, bias=bias)

    def forward(self, fenceposts: Tensor) -> Tensor:
        """Fenceposts (B, n + 1, H) -> scores (B, spans, S), spans in the order of ``spans_of``."""
        hidden = self.fencepost(fenceposts)
        starts, ends = spans_of(hidden.shape[1] - 1, hidden.device)
        size = len(starts)
        if not torch.is_grad_enabled():
            size = max(1, _MOST_HIDDEN // (len(hidden) * hidden.shape[2]))
        cuts = [slice(place, place + size) for place in range(0, len(starts), size)]
        pairs = (hidden[:, ends[cut]] - hidden[:, starts[cut]] for cut in cuts)
        return torch.cat([self.score(torch.relu(self.norm(pair))) for pair in pairs], 1)


@lru_cache(maxsize=256)
def spans_of(num_words: int, device: torch.device | None = None) -> tuple[Tensor, Tensor]:
    """The starts and ends of all spans of a sentence, by start; of one start, the longest span is the first.

    Constituents in this order are those of a tree from left to right, parents before children.

    >>> [part.tolist() for part in spans_of(2)]
    [[0, 0, 1], [2, 1, 2]]
    """
    starts, ends = torch.triu_indices(num_words + 1, num_words + 1, 1, device=device)
    return starts, num_words + 1 + starts - ends


def square(values: Tensor, num_words: int) -> Tensor:
    """Values of spans (B, spans) as a chart (B, n + 1, n + 1), with that of (i, j) at [:, i, j], else 0."""
    starts, ends = spans_of(num_words, values.device)
    found = values.new_zeros(len(values), num_words + 1, num_words + 1)
    found[:, starts, ends] = values
    return found


def flat(table: Tensor) -> Tensor:
    """The inverse of ``square``: (B, n + 1, n + 1) -> (B, spans)."""
    starts, ends = spans_of(table.shape[1] - 1, table.device)
    return table[:, starts, ends]


IntArray = NDArray[np.int64]


class SameLength(NamedTuple):
    """The words of sentences of one length with their tokens: W = B n words of at most P tokens."""

    pieces: Tensor  # (W, P)
    has_piece: Tensor  # (W, P) bool, False where a word has fewer tokens
    tags: Tensor | None  # (W,) part-of-speech tags, -1 for none
    num_words: int  # n, of each sentence


def by_length(batch: SentenceBatch) -> Iterator[tuple[IntArray, int]]:
    """For each length in a batch, the numbers of its sentences, and the length. Raises ``InputError`` for length 0."""
    for num_words in np.unique(batch.num_words).tolist():
        rows = np.flatnonzero(batch.num_words == num_words)
        if not num_words:
            raise InputError("a sentence without words", where=batch.names[int(rows[0])], remedy="leave it out")
        yield rows, num_words


def same_length(batch: SentenceBatch, rows: IntArray, num_words: int, ends_word: NDArray[np.bool_]) -> SameLength:
    """The words of the sentences ``rows`` of a batch, all of ``num_words``; ``ends_word`` (V,) marks ends of words."""
    counts = batch.token_offsets[rows + 1] - batch.token_offsets[rows]
    tokens = batch.tokens[gather_indices(batch.token_offsets[rows], counts)]
    ends = np.flatnonzero(ends_word[tokens]) + 1
    num_pieces = np.diff(ends, prepend=0)
    has_piece = np.arange(num_pieces.max()) < num_pieces[:, None]
    pieces = np.zeros(has_piece.shape, dtype=np.int64)
    pieces[has_piece] = tokens
    tags = None
    if batch.tags is not None:
        places = gather_indices(offsets_of(batch.num_words)[rows], np.full(len(rows), num_words))
        tags = torch.from_numpy(batch.tags[places])
    return SameLength(torch.from_numpy(pieces), torch.from_numpy(has_piece), tags, num_words)


def read_both_ways(
    words: SameLength,
    embedding: Tensor,
    edges: Tensor,
    lstm: nn.LSTM,
    *,
    embedding_dropout: float,
    dropout: float,
    training: bool,
) -> Tensor:
    """States (B, n + 2, 2H) of words, and of the edges before and after a sentence.

    A word's vector is the sum of the vectors of its tokens in ``embedding`` (V, E); ``edges`` (2, E) are those of the
    edges. ``embedding_dropout`` leaves tokens out of words; ``dropout`` zeroes units before and after the LSTM.
    """
    weights = words.has_piece.to(embedding.dtype)[..., None]
    if training and embedding_dropout:
        num_words, num_pieces = words.pieces.shape
        kept = dropouts.dropout_mask(num_words, num_pieces, embedding_dropout, embedding)
        weights = weights * kept[..., None]
    vectors = (functional.embedding(words.pieces, embedding) * weights).sum(1)
    vectors = vectors.view(-1, words.num_words, vectors.shape[1])
    first, last = (edge.expand(len(vectors), 1, -1) for edge in edges[:, None])
    inputs = torch.cat([first, vectors, last], 1)
    states = lstm_states(lstm, dropouts.dropout(inputs, dropout, training=training))
    return dropouts.dropout(states, dropout, training=training)


def fenceposts(states: Tensor) -> Tensor:
    """States (B, n + 2, 2H) -> fenceposts (B, n + 1, 2H): the state of what is before each, and of what follows."""
    half = states.shape[2] // 2
    return torch.cat([states[:, :-1, :half], states[:, 1:, half:]], 2)
