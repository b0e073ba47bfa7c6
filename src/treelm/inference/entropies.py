"""How uncertain a model is after each word: the entropy of what it expects next."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from treelm.corpora.encoding import encode_words
from treelm.models.base import SyntacticLM


def next_entropies(lm: SyntacticLM, sentences: Sequence[Sequence[str]]) -> list[NDArray[np.float64]]:
    """Entropy in bits of what follows each word (one symbol of the vocabulary, or the end), one array a sentence.

    Sentences are read word by word, each from its beginning. Of a search that prunes, the distribution is scaled to sum
    to 1. Where the model allows nothing to follow, the entropy is not a number.
    """
    if not sentences:
        return []
    batch = encode_words(sentences, lm.vocabulary)
    symbols = [batch.tokens[a:b] for a, b in zip(batch.token_offsets[:-1], batch.token_offsets[1:], strict=True)]
    found: list[list[float]] = [[] for _ in sentences]
    state = lm.start(len(sentences))
    for position in range(max(map(len, symbols))):
        read = [int(own[position]) if position < len(own) else None for own in symbols]
        state = lm.extend_symbols(state, read)
        ended = [n for n, symbol in enumerate(read) if symbol is not None and lm.vocabulary.ends_word[symbol]]
        if ended:
            log_probs = lm.next_word_log_probs(state)
            for number in ended:
                found[number].append(_entropy_bits(log_probs[number]))
    return [np.array(one) for one in found]


def _entropy_bits(log_probs: torch.Tensor) -> float:
    total = log_probs.logsumexp(0)
    if not torch.isfinite(total):
        return math.nan
    log_probs = log_probs - total
    terms = torch.where(torch.isfinite(log_probs), log_probs.exp() * log_probs, 0.0)
    return -float(terms.sum()) / math.log(2)
