"""Surprisal of words: what reading-time studies use, from the log probabilities of symbols."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from treelm.corpora.vocabulary import Vocabulary
from treelm.models.scores import SentenceScore

NATS_PER_BIT = math.log(2.0)


@dataclass(frozen=True, kw_only=True, slots=True)
class WordSurprisal:
    """One word of a sentence. ``columns`` holds what the system adds (entropy, open nodes, ...)."""

    word: str
    surprisal_bits: float
    is_unk: bool
    unk_class: str | None
    num_pieces: int
    columns: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class SentenceSurprisal:
    """The words of a sentence and its end. All bits together are minus log2 of the sentence's probability."""

    words: tuple[WordSurprisal, ...]
    end_surprisal_bits: float

    @property
    def total_bits(self) -> float:
        """Surprisal of the whole sentence, its end included."""
        return math.fsum([*(word.surprisal_bits for word in self.words), self.end_surprisal_bits])


def sentence_surprisal(words: Sequence[str], score: SentenceScore, vocabulary: Vocabulary) -> SentenceSurprisal:
    """Sum the surprisal of each word's symbols and name the class of each unknown word."""
    bits = score.log_probs / -NATS_PER_BIT
    by_word = np.bincount(score.word_of_symbol, weights=bits[:-1], minlength=len(words))
    num_pieces = np.bincount(score.word_of_symbol, minlength=len(words))
    rows = []
    for position, word in enumerate(words):
        unknown = vocabulary.unknown_class(word, sentence_initial=position == 0)
        rows.append(
            WordSurprisal(
                word=word,
                surprisal_bits=float(by_word[position]),
                is_unk=unknown is not None,
                unk_class=unknown,
                num_pieces=int(num_pieces[position]),
                columns={name: float(values[position]) for name, values in score.columns.items()},
            )
        )
    return SentenceSurprisal(words=tuple(rows), end_surprisal_bits=float(bits[-1]))
