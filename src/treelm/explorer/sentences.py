"""What was typed, as sentences within limits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from treelm.corpora.running_text import ENGLISH, sentence_ends
from treelm.corpora.tokens import words_of
from treelm.errors import InputError

Words = tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Limits:
    """The most that one tab may ask for at a time, and where its sentences end."""

    max_words: int = 60
    """Words of a sentence; a text may have eight times as many."""
    max_seconds: float = 60.0
    """Time that a model may take for a text, in which it may have to wait for other tabs."""
    split_sentences: str = ENGLISH
    """Language by whose rules lines are split into sentences; empty: a line is a sentence."""

    def __post_init__(self) -> None:
        """Raise ``InputError`` for limits that let nothing through, and for sentences that cannot be found."""
        if self.max_words < 1:
            raise InputError(f"--max-words {self.max_words}", remedy="give 1 or more")
        if not self.max_seconds > 0:
            raise InputError(f"--max-seconds {self.max_seconds:g}", remedy="give more than 0")
        if self.split_sentences:
            sentence_ends(("a",), self.split_sentences)

    @property
    def max_words_of_text(self) -> int:
        """Words of all sentences together."""
        return 8 * self.max_words


def sentences_of(text: str, limits: Limits) -> list[tuple[str, ...]]:
    """Cut lines into sentences as ``treelm surprisal --split-sentences`` does, and these into words as treebanks do.

    Raises ``InputError`` for a text that is longer than the limits.
    """
    found = [words for one in _written(text, limits.split_sentences) if (words := words_of(one, "treebank"))]
    for number, words in enumerate(found, 1):
        if len(words) > limits.max_words:
            remedy = f"a sentence has at most {limits.max_words} here: begin a new line, or raise --max-words"
            raise InputError(f"sentence {number} has {len(words)} words", remedy=remedy)
    total = sum(map(len, found))
    if total > limits.max_words_of_text:
        remedy = f"a text has at most {limits.max_words_of_text} here: treelm surprisal reads files of any length"
        raise InputError(f"{total:,} words", remedy=remedy)
    return found


def _written(text: str, language: str) -> Iterator[str]:
    """The sentences as they were typed."""
    for line in text.splitlines():
        words = line.split()
        ends = sentence_ends(words, language) if language else [len(words)]
        for start, end in pairwise([0, *ends]):
            yield " ".join(words[start:end])
