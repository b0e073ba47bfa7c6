"""Binary trees of a chart as batches of an RNNG, and those of a batch as a chart has them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from treelm.corpora.arrays import gather_indices, offsets_of
from treelm.corpora.batches import SentenceBatch
from treelm.errors import InputError
from treelm.models.layers import chart
from treelm.models.layers.gold_trees import constituents_of
from treelm.trees.transitions import FIRST_NT, REDUCE, SHIFT

IntArray = NDArray[np.int64]


def with_trees(
    batch: SentenceBatch, sentences: Sequence[IntArray], trees: Sequence[Tensor], ends_word: NDArray[np.bool_]
) -> SentenceBatch:
    """A batch of sentences of another one, each with a tree of one label; a sentence may be there many times.

    ``trees[g]`` (R, n + 1, n + 1) are 1 at the spans of binary trees over the sentences ``sentences[g]`` (R,), all of n
    words; ``ends_word`` (V,) says where words end. The only word of a sentence is a constituent.
    """
    chosen = np.concatenate(sentences)
    brackets = [_brackets(of_length) for of_length in trees]
    opens, closes = (np.concatenate([pair[side].ravel() for pair in brackets]) for side in (0, 1))
    num_tokens = batch.token_offsets[chosen + 1] - batch.token_offsets[chosen]
    tokens = batch.tokens[gather_indices(batch.token_offsets[chosen], num_tokens)]
    num_pieces = np.diff(np.flatnonzero(ends_word[tokens]) + 1, prepend=0)
    num_words = batch.num_words[chosen]
    counts = np.stack([opens, num_pieces, closes], 1)  # of a word: NT before it, its tokens, REDUCE behind it
    of_words = offsets_of(counts.sum(1))
    return SentenceBatch(
        tokens=tokens,
        token_offsets=offsets_of(num_tokens),
        num_words=num_words,
        actions=np.repeat(np.tile([FIRST_NT, SHIFT, REDUCE], len(counts)), counts.ravel()),
        action_offsets=of_words[offsets_of(num_words)],
        names=tuple(batch.names[number] for number in chosen.tolist()),
    )


def _brackets(trees: Tensor) -> tuple[IntArray, IntArray]:
    """How many constituents begin with each word, and how many end with it: two (R, n)."""
    spans = trees.detach().cpu().numpy() > 0.5
    num_words = spans.shape[1] - 1
    if num_words > 1:  # words are no constituents
        spans = spans & ~np.eye(num_words + 1, k=1, dtype=np.bool_)
    return spans.sum(2)[:, :-1], spans.sum(1)[:, 1:]


def gold_trees(batch: SentenceBatch, rows: IntArray, num_words: int, ends_word: NDArray[np.bool_]) -> Tensor:
    """The trees of some sentences of one length, made binary: float32 (B, n + 1, n + 1), 1 at their spans.

    Where a constituent has more than two children, it branches right: of the binary trees that have all its
    constituents, the chart takes the one with the first of equal splits. Labels and unary chains are lost. Raises
    ``InputError`` for a batch without trees.
    """
    if batch.actions is None or batch.action_offsets is None:
        remedy = 'train on a treebank (brackets or CoNLL-U), or set objective = "unsupervised"'
        raise InputError("sentence without a tree", where=batch.names[0], remedy=remedy)
    found = constituents_of(batch.actions, batch.action_offsets, ends_word[batch.tokens])
    own = np.isin(found.sentence, rows)
    spans = torch.zeros(len(rows), num_words + 1, num_words + 1)
    spans[np.searchsorted(rows, found.sentence[own]), found.start[own], found.end[own]] = 1.0
    return chart.best_trees(spans, torch.full((len(rows),), num_words))


def branches_one_way(trees: Tensor) -> str:
    """The side, ``right`` or ``left``, to which all of these trees (B, n + 1, n + 1) branch all the way, else ""."""
    num_words = trees.shape[1] - 1
    if bool((trees[:, :, num_words].sum(1) == num_words).all()):
        return "right"
    return "left" if bool((trees[:, 0].sum(1) == num_words).all()) else ""
