"""Sentences with trees as what a network reads: symbols, and the constituents that end before each input."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from treelm.corpora.batches import SentenceBatch
from treelm.corpora.encoding import EncodedCorpus, encode_sentences
from treelm.corpora.sentence import Sentence
from treelm.corpora.stream_batches import StreamBatch, non_trivial_spans
from treelm.corpora.vocabulary import Vocabulary
from treelm.errors import InputError

_ROWS = 64  # sentences that are read side by side
_LOOKED_AT = 1000  # sentences that are searched for constituents together


def encode_with_trees(sentences: Sequence[Sentence], vocabulary: Vocabulary) -> Iterator[SentenceBatch]:
    """Batches in the order of the sentences. Raises ``InputError`` for a sentence without a tree."""
    for start in range(0, len(sentences), _ROWS):
        chosen = sentences[start : start + _ROWS]
        labels: set[str] = set()
        for one in chosen:
            if one.tree is None:
                raise InputError("a sentence without a tree", where=one.where, remedy="give brackets or CoNLL-U")
            labels.update(constituent.label for constituent in one.tree.constituents())
        yield encode_sentences(chosen, vocabulary, sorted(labels))


def require_trees(corpus: EncodedCorpus) -> None:
    """Raise ``InputError`` for text."""
    if not corpus.prepared.has_trees:
        where = corpus.name(0) if len(corpus) else None
        raise InputError("a sentence without a tree", where=where, remedy="give brackets or CoNLL-U")


def require_constituents(corpus: EncodedCorpus, max_span: int) -> None:
    """Raise ``InputError`` unless some constituent of a corpus with trees has at most ``max_span`` symbols."""
    for start in range(0, len(corpus), _LOOKED_AT):
        batch = corpus.batch(range(start, min(start + _LOOKED_AT, len(corpus))))
        spans = non_trivial_spans(batch, corpus.vocabulary.ends_word)
        if (spans[:, 2] - spans[:, 1] <= max_span).any():
            return
    found = f"no constituent of two words or more, and {max_span} symbols or less, that could teach the attention"
    where = corpus.name(0) if len(corpus) else None
    raise InputError(found, where=where, remedy="give trees with constituents, raise max_span, or set span_weight = 0")


def before_inputs(batch: SentenceBatch, ends_word: NDArray[np.bool_]) -> NDArray[np.int64]:
    """(n, 3): step, row and number of symbols of every non-trivial constituent that ends just before this input.

    The first input of a sentence is the end symbol, so what ends with symbol s ends before the input s + 2.
    """
    spans = non_trivial_spans(batch, ends_word)
    return np.stack([spans[:, 2] + 1, spans[:, 0], spans[:, 2] - spans[:, 1]], 1)


def constituents_of(batch: StreamBatch) -> NDArray[np.int64]:
    """(n, 3): as ``before_inputs``, of a segment of a stream. Raises ``InputError`` if its text has no trees."""
    if batch.constituents is None:
        raise InputError("a stream without trees", where=batch.names[0], remedy="give brackets or CoNLL-U")
    return batch.constituents
