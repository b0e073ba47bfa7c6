"""From scores to data frames: stimuli are scored, and a row for each word says what the model says of it."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from treelm.corpora.sentence import Sentence
from treelm.errors import InputError
from treelm.inference.batching import in_batches
from treelm.inference.processes import Compute, in_process
from treelm.inference.stimuli import Stimulus
from treelm.inference.table_settings import Context
from treelm.models.base import LanguageModel
from treelm.models.capabilities import DocumentContext, has
from treelm.models.measures import MEASURES, Measure, score_with_measures
from treelm.models.scores import NATS_PER_BIT, SentenceScore, SubwordAggregation

if TYPE_CHECKING:
    import pandas as pd

BITS, CONVERGED = "surprisal_bits", "beam_converged"
"""Columns of every model, and of every model that searches: whether a narrower search would say the same."""


def context_of(lm: LanguageModel, asked: Context) -> Context:
    """The context that a model has: a document only if it keeps its context."""
    return "document" if asked == "document" and has(lm, DocumentContext) else "sentence"


def score_stimuli(
    lm: LanguageModel,
    stimuli: Iterable[Stimulus],
    *,
    context: Context = "sentence",
    measures: Sequence[Measure] = (),
    batch_size: int = 16,
    skipped: list[InputError] | None = None,
    compute: Compute[SentenceScore] | None = None,
) -> Iterator[tuple[Stimulus, SentenceScore | None]]:
    """Score stimuli in their order; None and an error in ``skipped`` is for those that cannot be (``in_batches``).

    With ``context="document"`` a model that keeps its context reads the sentences of a document in a row; any other
    begins every sentence from nothing. ``measures`` add a column each. ``compute`` (see ``model_workers``, with
    ``score_with_measures``) scores sentences in other processes.
    """
    if context_of(lm, context) == "document":
        for _, group in groupby(stimuli, key=lambda one: one.document):
            document = list(group)
            sentences = [one.as_read.words for one in document]
            yield from zip(document, score_with_measures(lm, sentences, measures, in_document=True), strict=True)
        return
    waiting = deque[Stimulus]()

    def as_read() -> Iterator[Sentence]:
        for one in stimuli:
            waiting.append(one)
            yield one.as_read

    compute = compute or in_process(partial(score_with_measures, lm, measures=measures))
    for _, score in in_batches(as_read(), compute, batch_size=batch_size, skipped=skipped):
        yield waiting.popleft(), score


def word_frame(
    lm: LanguageModel, stimuli: Sequence[Stimulus], scores: Sequence[SentenceScore], columns: Iterable[str] = ()
) -> pd.DataFrame:
    """A row for each word of scored stimuli: surprisal, how the word was read, and ``columns`` of the scores.

    A word that was read as several tokens has the sum of their bits, and a value in each column as ``word_columns`` and
    measures say. Only tokens that count (``Stimulus.counts``) are looked at. A column that the model lacks is missing.
    """
    import pandas as pd

    lengths = [len(own) for one in stimuli for own in one.tokens]
    counts = np.array([counts for one in stimuli for own in one.counts for counts in own], dtype=bool)
    gathered = _Gathered(np.repeat(np.arange(len(lengths)), lengths)[counts], len(lengths))
    unknown = [
        lm.vocabulary.unknown_class(token, sentence_initial=position == 0)
        for one in stimuli
        for position, token in enumerate(one.as_read.words)
    ]
    parts = [(one.word_of_token, one.log_probs[:-1] / -NATS_PER_BIT + 0.0) for one in scores]
    bits = _joined([np.bincount(words, bits) for words, bits in parts])
    num_pieces = _joined([np.bincount(words) for words, _ in parts])
    unk_class = gathered.first_known(np.array(unknown, dtype=object)[counts])
    found: dict[str, object] = {
        BITS: gathered.by(bits[counts], "sum"),
        "is_unk": pd.array([one is not None for one in unk_class], dtype="Int64"),
        "unk_class": unk_class,
        "num_pieces": pd.array(gathered.by(num_pieces[counts], "sum"), dtype="Int64"),
    }
    rules = {**{name: one.aggregation for name, one in MEASURES.items()}, **lm.word_columns}
    whole = {CONVERGED, *(name for name, one in MEASURES.items() if one.is_whole)}
    for name in columns:
        if name in rules and all(name in one.columns for one in scores):
            values = gathered.by(_joined([one.columns[name] for one in scores])[counts], rules[name])
        else:
            values = np.full(len(lengths), math.nan)
        found[name] = pd.array(values, dtype="Int64") if name in whole else values
    return pd.DataFrame(found)


class _Gathered:
    """Values of tokens, gathered into those of words."""

    def __init__(self, word: NDArray[np.int64], num_words: int) -> None:
        """Take the word of each token, in order; every word has one or more."""
        self._word, self._num_words = word, num_words
        self._first = np.flatnonzero(np.diff(word, prepend=-1))
        self._last = np.append(self._first, len(word))[1 : num_words + 1] - 1

    def by(self, values: NDArray[np.float64], how: SubwordAggregation) -> NDArray[np.float64]:
        """The values of words from those of tokens."""
        if how == "sum":
            return np.bincount(self._word, values, self._num_words).astype(np.float64)
        if how == "min":
            return np.minimum.reduceat(values, self._first) if len(values) else values
        return values[self._first if how == "first" else self._last]

    def first_known(self, values: NDArray[np.object_]) -> NDArray[np.object_]:
        """The first value of each word's tokens that is not None."""
        found = np.full(self._num_words, None, dtype=object)
        for word, value in zip(self._word[::-1], values[::-1], strict=True):
            found[word] = found[word] if value is None else value
        return found


def _joined(parts: Sequence[NDArray[np.generic]]) -> NDArray[np.float64]:
    return np.concatenate([np.zeros(0), *parts])


def end_bits(scores: Sequence[SentenceScore]) -> NDArray[np.float64]:
    """Surprisal of the end of each sentence."""
    return np.array([one.log_probs[-1] for one in scores]) / -NATS_PER_BIT + 0.0


def word_offsets(sentence: Sentence) -> list[tuple[int, int] | tuple[None, None]]:
    """Where each word stands in the sentence's text, or in its words joined by blanks if the source gives no text.

    Characters from 0, end exclusive; None for a word that is not in the text.
    """
    text = " ".join(sentence.words) if sentence.text is None else sentence.text
    offsets: list[tuple[int, int] | tuple[None, None]] = []
    position = 0
    for word in sentence.words:
        start = text.find(word, position)
        position = position if start < 0 else start + len(word)
        offsets.append((None, None) if start < 0 else (start, position))
    return offsets
