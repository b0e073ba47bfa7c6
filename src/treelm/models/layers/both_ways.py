"""Sentences of one length, read from both ends by an LSTM: what spans are scored by (Stern et al. 2017)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from treelm.corpora.arrays import gather_indices, offsets_of
from treelm.corpora.batches import SentenceBatch
from treelm.errors import InputError
from treelm.models.layers import dropout as dropouts

IntArray = NDArray[np.int64]


class SameLength(NamedTuple):
    """The words of sentences of one length, each with its tokens: W = B n words, P the most tokens of one."""

    pieces: Tensor  # (W, P)
    has_piece: Tensor  # (W, P) bool: a word may have fewer
    tags: Tensor | None  # (W,) -1 for none
    num_words: int  # of each sentence


def by_length(batch: SentenceBatch) -> Iterator[tuple[IntArray, int]]:
    """The sentences of a batch, by their numbers, for each length that there is. Raises ``InputError`` for length 0."""
    for num_words in np.unique(batch.num_words).tolist():
        rows = np.flatnonzero(batch.num_words == num_words)
        if not num_words:
            raise InputError("a sentence without words", where=batch.names[int(rows[0])], remedy="leave it out")
        yield rows, num_words


def same_length(batch: SentenceBatch, rows: IntArray, num_words: int, ends_word: NDArray[np.bool_]) -> SameLength:
    """The words of some sentences of a batch, which have one length; ``ends_word`` (V,) says where words end."""
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
    """States (B, n + 2, 2H) of words and of both edges.

    A word's vector is the sum of those of its tokens, in ``embedding`` (V, E); ``edges`` (2, E) stand before and after.
    Dropout: of tokens of a word, in training; of units of what the LSTM reads and of its states.
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
    states: Tensor = lstm(dropouts.dropout(inputs, dropout, training=training))[0]
    return dropouts.dropout(states, dropout, training=training)


def fenceposts(states: Tensor) -> Tensor:
    """States (B, n + 2, 2H) -> fenceposts (B, n + 1, 2H): what is known from before each, and from behind it."""
    half = states.shape[2] // 2
    return torch.cat([states[:, :-1, :half], states[:, 1:, half:]], 2)
