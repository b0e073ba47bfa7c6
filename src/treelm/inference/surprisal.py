"""Surprisal tables: one row a word, for reading-time work."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass

from treelm.corpora.sentence import Sentence
from treelm.io.json import finite
from treelm.models.scores import SentenceSurprisal

COLUMNS = (
    "sentence_id",
    "word_id",
    "word",
    "surprisal_bits",
    "is_unk",
    "unk_class",
    "num_pieces",
    "char_start",
    "char_end",
)
CONVERGED = "beam_converged"
"""The column that systems which search always have: whether a narrower search would say the same."""
END_OF_SENTENCE = "</s>"


@dataclass(frozen=True, kw_only=True, slots=True)
class ScoredSentence:
    """A sentence with its surprisals and the place of each word in its text."""

    sentence: Sentence
    surprisal: SentenceSurprisal
    offsets: tuple[tuple[int, int] | None, ...]  # characters, end exclusive; None where the text has no such word


def word_offsets(sentence: Sentence) -> tuple[tuple[int, int] | None, ...]:
    """Find each word in the sentence's text, or in its words joined by blanks if the source gives no text."""
    text = " ".join(sentence.words) if sentence.text is None else sentence.text
    offsets: list[tuple[int, int] | None] = []
    position = 0
    for word in sentence.words:
        start = text.find(word, position)
        if start < 0:
            offsets.append(None)
        else:
            position = start + len(word)
            offsets.append((start, position))
    return tuple(offsets)


@dataclass(frozen=True, kw_only=True, slots=True)
class Totals:
    """Sums over a table."""

    num_sentences: int = 0
    num_words: int = 0
    num_unknown_words: int = 0
    num_impossible_words: int = 0  # to which the model, or what its search found, gives probability 0
    word_surprisal_bits: float = 0.0
    end_surprisal_bits: float = 0.0

    def plus(self, scored: ScoredSentence) -> Totals:
        """The totals with one more sentence."""
        words = scored.surprisal.words
        return Totals(
            num_sentences=self.num_sentences + 1,
            num_words=self.num_words + len(words),
            num_unknown_words=self.num_unknown_words + sum(word.is_unk for word in words),
            num_impossible_words=self.num_impossible_words + sum(math.isinf(word.surprisal_bits) for word in words),
            word_surprisal_bits=self.word_surprisal_bits + sum(word.surprisal_bits for word in words),
            end_surprisal_bits=self.end_surprisal_bits + scored.surprisal.end_surprisal_bits,
        )

    def to_json(self) -> dict[str, object]:
        """The metrics under their names; null where a sum is infinite, for which JSON has no number."""
        values: dict[str, object] = finite(asdict(self))
        return values
