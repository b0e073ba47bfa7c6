"""Words of a text: the one way to cut it, for readers, the interface of models, suites, pairs, stimuli.

A blank is one of six ASCII characters. A no-break space and the other spaces of Unicode are not: in treebanks and
vocabularies they stand inside words, such as ``10\u00a0000``.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import Literal

from treelm.errors import InputError

Tokenisation = Literal["whitespace", "treebank"]

BLANKS = " \t\n\r\f\v"  # the characters that separate words
_NUL = "\0"
_BETWEEN_BLANKS = re.compile(f"[^{BLANKS}]+")
_CLITIC = r"(?:n['’]t|['’](?:s|re|ve|ll|d|m))"
_PLANES = (range(0x300, 0x20000), range(0xE0100, 0xE01F0))  # where marks are


@cache
def _marks() -> re.Pattern[str]:
    """What belongs to the letter before it: vowel signs, as of Hindi, accents that stand alone, joiners of Persian."""
    marks = (chr(code) for codes in _PLANES for code in codes if unicodedata.category(chr(code)).startswith("M"))
    # case by case: without it U+0345 is also the letter iota, and a letter that is a mark can be read in two ways
    return re.compile(f"(?-i:[\u200c\u200d{''.join(marks)}])")


@cache
def _treebank(marks: str = "") -> re.Pattern[str]:
    """The pattern of a token, where some letters have marks after them (a set of characters), or none."""
    extended = f"{marks}*" if marks else ""
    goes_on = rf"[^\W_]|{marks}" if marks else r"[^\W_]"
    letter = rf"(?:[^\W\d_]{extended})"
    word = rf"\w+(?:{marks}+\w*)*" if marks else r"\w+"
    return re.compile(
        rf"""
          {_CLITIC}(?!{goes_on})                                  # 's 're n't, cut from their words below
        | (?:{letter}\.){{2,}}                                # U.S.
        | (?:Mr|Mrs|Ms|Dr|Prof|St|Jr|Sr|vs|etc|Inc|Co|Corp|Ltd)\.
        | \d+(?:[.,:/]\d+)*%?                                  # 3.14, 1,000, 10:30
        | {letter}+?(?={_CLITIC}(?!{goes_on}))                    # do|n't, company|'s
        | {word}(?:(?!{_CLITIC}(?!{goes_on}))[-'’&/]{word})*      # words, well-known, O'Brien
        | \.{{2,}} | -{{2,}} | ``|''                           # ... -- quotation marks
        | \S
        """,
        re.VERBOSE | re.IGNORECASE,
    )


def _treebank_for(text: str) -> re.Pattern[str]:
    """The pattern for a text: several times as fast where nothing in it is a mark, as in nearly all of English."""
    return _treebank(_marks().pattern) if not text.isascii() and _marks().search(text) else _treebank()


def words_of(text: str, how: Tokenisation = "whitespace", *, where: str | None = None) -> tuple[str, ...]:
    """Cut a text into words as ``token_spans`` does.

    >>> words_of("It isn't 3.14.", "treebank")
    ('It', 'is', "n't", '3.14', '.')
    """
    check_text(text, where=where)
    if how == "treebank":
        return tuple(_treebank_for(text).findall(text))
    try:
        return tuple([word.decode() for word in text.encode().split()])  # the same, and twice as fast
    except UnicodeEncodeError:  # half a character
        return tuple(_BETWEEN_BLANKS.findall(text))


def token_spans(text: str, how: Tokenisation, *, where: str | None = None) -> Iterator[tuple[int, int]]:
    """The place of each word, in characters, end exclusive.

    ``whitespace`` splits on ASCII whitespace alone. ``treebank`` is for running text: it also splits on all other
    spaces of Unicode, and cuts off punctuation and the clitics n't 's 're 've 'll 'd 'm, as English treebanks do; it
    keeps numbers, abbreviations and hyphenated words whole, and a letter with its marks, such as vowel signs of Hindi.
    Raises ``InputError`` as ``check_text`` does.
    """
    check_text(text, where=where)
    pattern = _BETWEEN_BLANKS if how == "whitespace" else _treebank_for(text)
    return (match.span() for match in pattern.finditer(text))


def words_of_each(sentences: Sequence[str | Sequence[str]]) -> list[Sequence[str]]:
    """The words of sentences, each of them a list of words, or a text that is split on whitespace.

    Raises ``InputError`` for one text instead of a list, because its characters would be taken for sentences; also for
    a word that is not a text, is empty, or has a NUL character.
    """
    if isinstance(sentences, str):
        raise InputError("one text where a list of sentences was expected", remedy=f"give [{sentences!r}]")
    if not isinstance(sentences, Iterable):
        found = f"{type(sentences).__name__} where a list of sentences was expected"
        raise InputError(found, remedy="give texts, or lists of words")
    return [words_of(one) if isinstance(one, str) else _checked(one) for one in sentences]


def check_have_words(sentences: Sequence[Sequence[str]]) -> None:
    """Raise ``InputError`` for a sentence without words, which has no tree."""
    for number, words in enumerate(sentences):
        if not words:
            raise InputError(f"sentence {number} is without words", remedy="leave it out")


def _checked(sentence: Sequence[str]) -> Sequence[str]:
    if not isinstance(sentence, Sequence) or isinstance(sentence, bytes):
        found = f"{type(sentence).__name__} where a sentence was expected"
        raise InputError(found, remedy="give a text, or a list of words")
    check_words(sentence)
    return sentence


def check_words(words: Iterable[str]) -> None:
    """Raise ``InputError`` unless each is a text of at least one character, and none of them NUL."""
    for word in words:
        if not isinstance(word, str):
            raise InputError(f"{type(word).__name__} where a word was expected", remedy="give words as texts (str)")
        if not word:
            raise InputError("an empty word", remedy="remove it")
        check_text(word)


def check_text(text: str, *, where: str | None = None) -> None:
    """Raise ``InputError`` for a NUL character, which no text has; ``where`` is for the message."""
    if _NUL in text:
        raise InputError("a NUL character", where=where, remedy="remove it: text has none")
