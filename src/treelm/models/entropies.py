"""Entropy of what a model expects next, by its distribution over the tokens of its vocabulary and the end."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from treelm.corpora.encoding import encode_words
from treelm.models.base import IncrementalState, LanguageModel

ENTROPY = "next_entropy_bits"
"""The column that is computed on demand only: it takes a distribution over the whole vocabulary after every word."""


def next_entropies(
    lm: LanguageModel, sentences: Sequence[Sequence[str]], state: IncrementalState | None = None
) -> list[NDArray[np.float64]]:
    """Entropy in bits of what follows each word (one token of the vocabulary, or the end), one array a sentence.

    Sentences are read word by word, from ``state`` if one is given, else each from its beginning. Of a search that
    prunes, the distribution is scaled to sum to 1. Where the model allows nothing to follow, the entropy is not a
    number.
    """
    if not sentences:
        return []
    batch = encode_words(sentences, lm.vocabulary)
    tokens = [batch.tokens_of(number) for number in range(len(batch))]
    found: list[list[float]] = [[] for _ in sentences]
    state = lm.start(len(sentences)) if state is None else state
    for position in range(max(map(len, tokens))):
        read = [int(own[position]) if position < len(own) else None for own in tokens]
        state = lm.extend_tokens(state, read)
        ended = [n for n, token in enumerate(read) if token is not None and lm.vocabulary.ends_word[token]]
        if ended:
            log_probs = lm.next_word_log_probs(state)
            for number in ended:
                found[number].append(entropy_bits(log_probs[number]))
    return [np.array(one) for one in found]


def start_entropy(lm: LanguageModel) -> float:
    """Entropy in bits of what comes first in a sentence, as ``next_entropies`` has it of what follows a word."""
    return entropy_bits(lm.next_word_log_probs(lm.start(1))[0])


def entropy_bits(log_probs: torch.Tensor) -> float:
    """Entropy in bits of a distribution (V + 1,), scaled to sum to 1; not a number if there is none."""
    total = log_probs.logsumexp(0)
    if not torch.isfinite(total):
        return math.nan
    log_probs = log_probs - total
    terms = torch.where(torch.isfinite(log_probs), log_probs.exp() * log_probs, 0.0)
    return -float(terms.sum()) / math.log(2)
