"""The gold constituents that end before each input (for PaLM-S; Peng, Schwartz & Smith 2019).

Shapes: m longest span, T steps, B rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from treelm.corpora.encoding import SentenceBatch, encode_sentences
from treelm.corpora.sentence import Sentence
from treelm.corpora.stream_batches import non_trivial_spans
from treelm.corpora.vocabulary import Vocabulary
from treelm.errors import InputError

_ROWS = 64  # sentences of a batch


def encode_with_trees(sentences: Sequence[Sentence], vocabulary: Vocabulary) -> Iterator[SentenceBatch]:
    """Batches of the sentences with their trees, in order. Raises ``InputError`` for a sentence without a tree."""
    for start in range(0, len(sentences), _ROWS):
        chosen = sentences[start : start + _ROWS]
        labels: set[str] = set()
        for one in chosen:
            if one.tree is None:
                raise InputError("a sentence without a tree", where=one.where, remedy="give brackets or CoNLL-U")
            labels.update(constituent.label for constituent in one.tree.constituents())
        yield encode_sentences(chosen, vocabulary, sorted(labels))


def before_inputs(batch: SentenceBatch, ends_word: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Every non-trivial constituent as (step, row, number of tokens), where it ends just before the input of the step.

    The result is (n, 3). The first input of a sentence is the end token, so a constituent whose last token is s ends
    before the input s + 2.
    """
    spans = non_trivial_spans(batch, ends_word)
    return np.stack([spans[:, 2] + 1, spans[:, 0], spans[:, 2] - spans[:, 1]], 1)


def gold_spans(constituents: NDArray[np.int64], shape: tuple[int, ...]) -> NDArray[np.bool_]:
    """Whether the spans of 1 to m tokens that end before each step are constituents: ``shape`` is (T, B, m).

    ``constituents`` (n, 3) are steps, rows and lengths, as in ``StreamBatch``; longer ones and later steps are left
    out.
    """
    step, row, length = constituents[(constituents[:, 2] <= shape[2]) & (constituents[:, 0] < shape[0])].T
    gold = np.zeros(shape, np.bool_)
    gold[step, row, length - 1] = True
    return gold
