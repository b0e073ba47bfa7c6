"""Measures over the distribution of the next word: entropy, rank, and any that you add.

A measure is a function of what a model expects at a place between words, and of what came there:

    measure(log_probs, next_token) -> values

    log_probs   (n, V + 1) float64, nats: log p of each token of the vocabulary and, last, of the end of the sentence.
                The probabilities of a row sum to 1, also where a search that prunes has lost some of them.
    next_token  (n,) the token that came: the first one of the next word, or V, the end.
    values      (n,)

A measure that is registered by ``measure`` is a column of every table, for every system that predicts words.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import zip_longest
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from treelm.corpora.encoding import encode_words
from treelm.corpora.vocabulary import Vocabulary
from treelm.errors import InputError, choose_from
from treelm.models.capabilities import DocumentContext, require
from treelm.models.scores import SentenceScore, SubwordAggregation
from treelm.models.states import IncrementalState

if TYPE_CHECKING:
    from treelm.models.base import LanguageModel

Function = Callable[[Tensor, Tensor], Tensor]
Values = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Measure:
    """A measure over the distribution of the next word, and the word that a value belongs to."""

    name: str
    function: Function
    at: Literal["before", "after"]
    """The place that the value of a word is from: the one before the word, where ``next_token`` is its first token, or
    the one after the word, where ``next_token`` is the first token of the next word, or the end."""
    is_whole: bool
    """Whether values are whole numbers."""

    @property
    def aggregation(self) -> SubwordAggregation:
        """How a word of several tokens gets its value: that of its first token, or that after its last token."""
        return "first" if self.at == "before" else "last"


MEASURES: dict[str, Measure] = {}
"""All measures, by the names of their columns."""


def measure(name: str, *, at: Literal["before", "after"], is_whole: bool = False) -> Callable[[Function], Function]:
    """Register a function as the measure of this name; ``at`` and ``is_whole`` are those of ``Measure``.

    Give values in bits a name that ends in ``_bits``: ``--log-base`` converts these columns to nats or hartleys.
    """

    def register(function: Function) -> Function:
        MEASURES[name] = Measure(name=name, function=function, at=at, is_whole=is_whole)
        return function

    return register


def chosen_measures(names: Sequence[str]) -> list[Measure]:
    """The measures of these names. Raises ``InputError`` for a name that no measure has."""
    if isinstance(names, str) or not isinstance(names, Sequence):
        raise InputError(f"measures = {names!r}", remedy=f"give a list, such as [{ENTROPY!r}]")
    for name in names:
        if name not in MEASURES:
            raise InputError(f"no measure {name!r}", remedy=choose_from(name, MEASURES))
    return [MEASURES[name] for name in names]


ENTROPY = "next_entropy_bits"


@measure(ENTROPY, at="after")
def entropy(log_probs: Tensor, next_token: Tensor) -> Tensor:
    """The entropy in bits of what comes next."""
    terms: Tensor = torch.special.entr(log_probs.exp())
    return terms.sum(1) / math.log(2)


@measure("next_rank", at="before", is_whole=True)
def rank(log_probs: Tensor, next_token: Tensor) -> Tensor:
    """The rank of the token that came among all that might have come: 1 for the most probable one."""
    return (log_probs > log_probs.gather(1, next_token[:, None])).sum(1) + 1


def score_with_measures(
    lm: LanguageModel,
    sentences: Sequence[Sequence[str]],
    measures: Sequence[Measure] = (),
    *,
    in_document: bool = False,
) -> list[SentenceScore]:
    """Score sentences, by themselves or as a document in a row, with a column for each measure.

    Raises ``InputError`` as ``score`` does, and for a model that cannot read documents if they are one.
    """
    scores = require(lm, DocumentContext).score_document(sentences) if in_document else lm.score(sentences)
    if not measures:
        return scores
    found = lm.reduce_next_log_probs(sentences, partial(apply_measures, measures), in_document=in_document)
    for number, values in enumerate(found):  # of all places (num_words + 1, num_measures)
        columns = {m.name: values[:-1, i] if m.at == "before" else values[1:, i] for i, m in enumerate(measures)}
        scores[number] = replace(scores[number], columns={**scores[number].columns, **columns})
    return scores


def value_at_start(lm: LanguageModel, name: str) -> float:
    """The value of a measure before the first word of a sentence, as if the sentence ended there."""
    (values,) = lm.reduce_next_log_probs([()], partial(apply_measures, [MEASURES[name]]))
    return float(values[0, 0])


def apply_measures(measures: Sequence[Measure], log_probs: Tensor, next_token: Tensor) -> Tensor:
    """The values of measures, float64 (n, num_measures), at n places with log p (n, V + 1).

    They are NaN at a place where nothing may come.
    """
    total = log_probs.logsumexp(1)
    log_probs = log_probs - total[:, None]
    found = torch.stack([one.function(log_probs, next_token).double() for one in measures], 1)
    return found.masked_fill(~total.isfinite()[:, None], torch.nan)


def word_boundaries(tokens: NDArray[np.int64], vocabulary: Vocabulary) -> NDArray[np.int64]:
    """The number of tokens before each word of a sentence and before its end: (num_words + 1,)."""
    return np.append(0, 1 + np.flatnonzero(vocabulary.ends_word[tokens]))


@torch.no_grad()
def read_word_by_word(
    lm: LanguageModel, sentences: Sequence[Sequence[str]], reduce: Function, state: IncrementalState
) -> list[Values]:
    """Implement ``LanguageModel.reduce_next_log_probs`` token by token, from the state before the sentences."""
    batch = encode_words(sentences, lm.vocabulary)
    tokens = [batch.tokens_of(number) for number in range(len(batch))]
    boundaries = [set(word_boundaries(own, lm.vocabulary).tolist()) for own in tokens]
    found: list[list[Tensor]] = [[] for _ in tokens]
    for position, row in enumerate(zip_longest(*([*own.tolist(), None] for own in tokens))):
        numbers = [number for number, places in enumerate(boundaries) if position in places]
        if numbers:
            log_probs = lm.next_word_log_probs(state)[numbers]
            coming = [len(lm.vocabulary) if row[number] is None else row[number] for number in numbers]
            values = reduce(log_probs, torch.tensor(coming, device=log_probs.device))
            for number, value in zip(numbers, values.cpu(), strict=True):
                found[number].append(value)
        if any(token is not None for token in row):
            state = lm.extend_tokens(state, row)
    return [torch.stack(values).numpy() for values in found]
