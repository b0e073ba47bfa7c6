"""Per-sentence arithmetic on flat arrays that are ordered by sentence."""

from __future__ import annotations

import numpy as np

from treelm.models.search.rows import Bools, Floats, Ints


class Layout:
    """Where n flat entries, ordered by sentence, stand in a matrix with one row a sentence."""

    def __init__(self, sentence: Ints, num_sentences: int) -> None:
        counts = np.bincount(sentence, minlength=num_sentences)
        self.num_sentences = num_sentences
        self.width = int(counts.max(initial=0))
        self.starts = np.cumsum(counts) - counts
        self._sentence = sentence
        self._column = np.arange(len(sentence)) - self.starts[sentence]

    def pad(self, values: Floats) -> Floats:
        """(n,) or (n, m) -> (sentences, width) or (sentences, width * m), -inf where there is no entry."""
        if self.num_sentences == 1:
            return values.reshape(1, -1)
        out = np.full((self.num_sentences, self.width, *values.shape[1:]), -np.inf)
        out[self._sentence, self._column] = values
        return out.reshape(self.num_sentences, -1)

    def flat(self, rows: Ints, columns: Ints) -> Ints:
        """The entries that stand at these places."""
        return self.starts[rows] + columns


def best(values: Floats, count: int) -> Bools:
    """Which are the ``count`` highest of each row, fewer if fewer are above -inf; of equal ones the first."""
    width = values.shape[1]
    if width <= count:
        return values > -np.inf
    if count == 0:
        return np.zeros(values.shape, np.bool_)
    lowest = np.partition(values, width - count, axis=1)[:, width - count, None]
    chosen: Bools = values > lowest
    ties = (values == lowest) & (lowest > -np.inf)
    missing = count - chosen.sum(1, keepdims=True)
    if (ties.sum(1, keepdims=True) > missing).any():
        ties &= np.cumsum(ties, 1) <= missing
    either: Bools = chosen | ties
    return either


def nth_best(values: Floats, count: int) -> Floats:
    """The ``count``-th highest of each row, -inf where there are fewer: (rows,). ``count`` is at least 1."""
    width = values.shape[1]
    if width < count:
        return np.full(len(values), -np.inf)
    return np.partition(values, width - count, axis=1)[:, width - count]


def log_sums(sentence: Ints, scores: Floats, num_sentences: int) -> Floats:
    """log of the sum of exp(score) for every sentence, -inf where it has none."""
    highest = np.full(num_sentences, -np.inf)
    np.maximum.at(highest, sentence, scores)
    shift = np.where(np.isfinite(highest), highest, 0.0)
    with np.errstate(divide="ignore"):
        sums: Floats = np.log(np.bincount(sentence, np.exp(scores - shift[sentence]), num_sentences))
    return sums + shift
