"""From scores to data frames: stimuli are scored, and each word gets a row with what the model predicts about it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import compress, groupby
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from treelm.errors import InputError
from treelm.inference.batching import Compute, in_batches, in_process
from treelm.inference.settings import Context
from treelm.inference.stimuli import Stimulus
from treelm.models.base import LanguageModel
from treelm.models.capabilities import DocumentContext, has
from treelm.models.measures import MEASURES, Measure, score_with_measures
from treelm.models.scores import CONVERGED, NATS_PER_BIT, SentenceScore, SubwordAggregation

if TYPE_CHECKING:
    import pandas as pd

BITS = "surprisal_bits"  # column of every model


def context_of(lm: LanguageModel, asked: Context) -> Context:
    """The context that a model reads: the document, if that is asked for and the model can read documents."""
    return "document" if asked == "document" and has(lm, DocumentContext) else "sentence"


def score_stimuli(
    lm: LanguageModel,
    stimuli: Iterable[Stimulus],
    *,
    context: Context = "sentence",
    measures: Sequence[Measure] = (),
    batch_size: int = 16,
    skipped: list[InputError] | None = None,
    compute: Compute = in_process,
) -> Iterator[tuple[Stimulus, SentenceScore | None]]:
    """Yield each stimulus with its score, in input order.

    A stimulus that cannot be scored has None, and ``skipped`` collects its error; without ``skipped`` the error is
    raised (``in_batches``). With ``context="document"`` a model that can reads the sentences of a document in a row,
    in this process; all else is scored where ``compute`` does it. Each of the ``measures`` adds a column to the scores.
    """
    if context_of(lm, context) == "document":
        for _, group in groupby(stimuli, key=lambda one: one.document):
            document = list(group)
            scores = score_with_measures(lm, [one.words for one in document], measures, in_document=True)
            yield from zip(document, scores, strict=True)
        return
    score = partial(compute, lm, partial(score_with_measures, measures=measures))
    yield from in_batches(stimuli, score, batch_size=batch_size, skipped=skipped)


def word_frame(
    lm: LanguageModel, stimuli: Sequence[Stimulus], scores: Sequence[SentenceScore], columns: Iterable[str] = ()
) -> pd.DataFrame:
    """A data frame with a row for each word of scored stimuli: its surprisal, how it was read, and ``columns``.

    A word that is read as several tokens has the sum of the bits of those that count (``Stimulus.counts``), and in each
    column the value by the rule of that column (``SubwordAggregation``). A column that the model does not have is
    missing (NaN).
    """
    import pandas as pd

    lengths = [len(own) for one in stimuli for own in one.tokens]
    counts = np.array([counts for one in stimuli for own in one.counts for counts in own], dtype=bool)
    word = np.repeat(np.arange(len(lengths)), lengths)[counts]  # of each token that counts; every word has one
    first = np.flatnonzero(np.diff(word, prepend=-1))

    def summed(values: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.bincount(word, values, len(lengths)).astype(np.float64)

    gathered: dict[SubwordAggregation, Callable[[NDArray[np.float64]], NDArray[np.float64]]] = {
        "sum": summed,
        "part": summed,
        "min": lambda values: np.minimum.reduceat(values, first) if len(values) else values,
        "first": lambda values: values[first],
        "last": lambda values: values[np.append(first, len(word))[1:] - 1],
    }
    tokens = [(position == 0, token) for one in stimuli for position, token in enumerate(one.words)]
    unknown: dict[int, str] = {}
    for number, (is_initial, token) in zip(word.tolist(), compress(tokens, counts), strict=True):
        if found_class := lm.vocabulary.unknown_class(token, sentence_initial=is_initial):
            unknown.setdefault(number, found_class)
    bits = _joined([np.bincount(one.word_of_token, one.log_probs[:-1] / -NATS_PER_BIT) for one in scores])
    num_pieces = _joined([np.bincount(one.word_of_token) for one in scores])
    found: dict[str, object] = {
        BITS: summed(bits[counts]),
        "is_unk": pd.array([number in unknown for number in range(len(lengths))], dtype="Int64"),
        "unk_class": pd.Series([unknown.get(number) for number in range(len(lengths))], dtype=object),
        "num_pieces": pd.array(summed(num_pieces[counts]), dtype="Int64"),
    }
    rules = {**{name: one.aggregation for name, one in MEASURES.items()}, **lm.word_columns}
    whole = {CONVERGED, *(name for name, one in MEASURES.items() if one.is_whole)}
    for name in columns:
        values = np.full(len(lengths), math.nan)
        if name in rules and all(name in one.columns for one in scores):
            values = gathered[rules[name]](_joined([one.columns[name] for one in scores])[counts])
        found[name] = pd.array(values, dtype="Int64") if name in whole else values
    return pd.DataFrame(found)


def _joined(parts: Sequence[NDArray[np.generic]]) -> NDArray[np.float64]:
    return np.concatenate([np.zeros(0), *parts])


def end_bits(scores: Sequence[SentenceScore]) -> NDArray[np.float64]:
    """The surprisal in bits of the end of each sentence."""
    return np.array([one.log_probs[-1] for one in scores]) / -NATS_PER_BIT + 0.0
