"""Predictors of reading times that follow from the words alone, without the marks around them. None is missing."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from unicodedata import category, normalize

from treelm.corpora.tokens import words_of
from treelm.errors import InputError, import_extra
from treelm.io.tables import read_table

WORD_LENGTH, ZIPF_FREQUENCY, UNIGRAM = "word_length", "zipf_frequency", "unigram_surprisal_bits"
WORD_POSITION, DOCUMENT_POSITION = "word_position", "document_position"
PREDICTORS = (WORD_LENGTH, ZIPF_FREQUENCY, UNIGRAM, WORD_POSITION, DOCUMENT_POSITION)
"""Columns for every model: the number of characters of a word without the marks around it; log10 of how often it occurs
in a thousand million words; -log2 of its share of the words that the model was trained on; and its number in the
sentence and in the document, from 1."""
_WORDFREQ = "wordfreq:"
_COUNT = re.compile("[0-9]{1,18}")


def bare(word: str) -> str:
    """Return a word without the marks around it; "" if it consists of marks alone.

    Accents and vowel signs that are characters of their own belong to their letters.

    >>> bare('"well-known,"')
    'well-known'
    """
    spelled = [place for place, character in enumerate(word) if character.isalnum() or category(character)[0] == "M"]
    return word[spelled[0] : spelled[-1] + 1] if spelled else ""


def word_length(word: str) -> int:
    """Count the characters of a word without the marks around it; a letter and its accents are one.

    >>> word_length("dog,"), word_length("isn't"), word_length("-"), word_length("cafe\u0301")
    (3, 5, 0, 4)
    """
    return len(normalize("NFC", bare(word)))


@dataclass(frozen=True, kw_only=True)
class Frequencies:
    """Frequencies of words on the Zipf scale: log10 of occurrences in a thousand million words.

    The scale is that of van Heuven et al. (2014, "SUBTLEX-UK"): 1 to 3 are rare words, 4 to 7 frequent ones.
    """

    zipf: Callable[[str], float]  # of a word without marks around it, in any case

    def of(self, word: str) -> float | None:
        """The frequency of a word as it was shown; None if it consists of marks alone, or is several words."""
        found = normalize("NFC", bare(word))
        return self.zipf(found) if len(words_of(found)) == 1 else None

    @classmethod
    def named(cls, source: str) -> Frequencies:
        """The frequencies of wordfreq (Speer 2022; ``wordfreq:en``), or of a table with the columns word and count.

        Raises ``InputError`` if the library is not installed or does not have the language, and as ``read_counts``
        does.
        """
        language = source.removeprefix(_WORDFREQ)
        if language == source:
            return cls.of_counts(read_counts(source))
        wordfreq = import_extra("wordfreq", "wordfreq")
        known = sorted(wordfreq.available_languages())
        if language not in known:
            found = f"no frequencies of the language {language!r} in wordfreq"
            raise InputError(found, remedy=f"choose from: {', '.join(known)}")
        return cls(zipf=lambda word: float(wordfreq.zipf_frequency(word, language)))

    @classmethod
    def of_counts(cls, counts: Mapping[str, int]) -> Frequencies:
        """Frequencies by counts of words, without regard to case.

        They are log10((count + 1) / (tokens + types)) + 9, where a word that is not in the counts has count 0 (van
        Heuven et al. 2014).
        """
        folded = Counter[str]()
        for word, count in counts.items():
            folded[normalize("NFC", word).casefold()] += count
        size = math.log10(folded.total() + len(folded))
        return cls(zipf=lambda word: math.log10(folded[word.casefold()] + 1) - size + 9)  # of 10 ** 9 words


def read_counts(path: str) -> dict[str, int]:
    """Read a table with the columns word and count, whatever the case of their names.

    Counts of the same word are added up. Raises ``InputError``, with file and line, for a table without these columns
    or without rows, and for a count that is not a whole number.
    """
    names, rows, _ = read_table(path)
    columns = {name.casefold(): name for name in names}
    for name in ("word", "count"):
        if name not in columns:
            remedy = f"name the columns word and count; there are {', '.join(names) or 'none'}"
            raise InputError(f"no column {name!r}", where=f"{path}:1", remedy=remedy)
    counts = Counter[str]()
    for where, cells in rows:
        count = cells[columns["count"]]
        if not _COUNT.fullmatch(count):
            raise InputError(f"{count!r} is not a count", where=where, remedy="give whole numbers from 0 on")
        counts[cells[columns["word"]]] += int(count)
    if not counts:
        raise InputError("a table without rows", where=path, remedy="give a row for every word")
    return dict(counts)


class Unigrams:
    """The surprisal of tokens by their share of a corpus, whatever comes before them."""

    def __init__(self, counts: Mapping[str, int]) -> None:
        """Take counts of the words of a corpus.

        One is added to the count of each form, and to that of all other words together.
        """
        self._counts = counts
        self._log_size = math.log2(sum(counts.values()) + len(counts) + 1)

    def bits(self, tokens: Iterable[str]) -> float:
        """-log2 of the share of each token, summed over the tokens that a word is read as.

        >>> Unigrams({"the": 3, "dog": 2}).bits(["the"])
        1.0
        """
        return math.fsum(self._log_size - math.log2(self._counts.get(token, 0) + 1) for token in tokens)
