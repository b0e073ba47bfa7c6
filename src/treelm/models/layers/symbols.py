"""Words of sentences written as symbols, for reading text without trees."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from treelm.corpora.batches import SentenceBatch
from treelm.corpora.vocabulary import Vocabulary
from treelm.errors import InputError
from treelm.models.layers.levels import starts

IntArray = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class WrittenSentences:
    """A batch, and the word that each of its symbols belongs to (symbols,)."""

    batch: SentenceBatch
    words: IntArray

    def symbols(self, sentence: int) -> IntArray:
        """The symbols of a sentence."""
        return self.batch.tokens[self._places(sentence)]

    def word_of_symbol(self, sentence: int) -> IntArray:
        """The word of every symbol of a sentence, counted from 0."""
        return self.words[self._places(sentence)]

    def _places(self, sentence: int) -> slice:
        first, last = self.batch.token_offsets[sentence : sentence + 2]
        return slice(first, last)


def write_word(word: str, vocabulary: Vocabulary, *, sentence_initial: bool) -> IntArray:
    """The symbols of a word."""
    return vocabulary.encode([word], sentence_initial=sentence_initial).ids.astype(np.int64)


def write_sentences(sentences: Sequence[Sequence[str]], vocabulary: Vocabulary) -> WrittenSentences:
    """Sentences as symbols. Raises ``InputError`` for a sentence without words."""
    symbols: list[IntArray] = []
    words: list[IntArray] = []
    for number, sentence in enumerate(sentences):
        if not sentence:
            raise InputError(f"sentence {number} has no words", remedy="leave it out")
        initial = write_word(sentence[0], vocabulary, sentence_initial=True)
        rest = vocabulary.encode(list(sentence[1:]))
        lengths = np.concatenate([[len(initial)], np.diff(rest.offsets)]).astype(np.int64)
        symbols.append(np.concatenate([initial, rest.ids.astype(np.int64)]))
        words.append(np.repeat(np.arange(len(sentence)), lengths))
    empty = np.zeros(0, np.int64)
    batch = SentenceBatch(
        tokens=np.concatenate([empty, *symbols]),
        token_offsets=starts(np.array([len(part) for part in symbols], np.int64)),
        num_words=np.array([len(sentence) for sentence in sentences], np.int64),
        names=tuple(f"sentence {number}" for number in range(len(sentences))),
    )
    return WrittenSentences(batch=batch, words=np.concatenate([empty, *words]))
