"""Running text treated as the training text was: marks normalised, sentences found, words cut.

A model that was trained on straight quotation marks takes curly ones for rare words, and one that was trained on
sentences takes a paragraph for a very long one. Text to be scored therefore goes through the functions that prepared
the training text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

from treelm.corpora.tokens import check_text, words_of
from treelm.errors import InputError, import_extra

ENGLISH = "en"
CHARACTERS = str.maketrans(
    {
        **dict.fromkeys("\u2010\u2011\u2012\u2013\u2212", "-"),  # hyphens, en dash, minus
        **dict.fromkeys("\u00a0\u2009\u200a\u202f", " "),
        **dict.fromkeys("\u00ad\u200b\u2060\ufeff", None),  # soft hyphen and what has no width
        **dict.fromkeys("\u02bc\u2032", "'"),
        **dict.fromkeys("\u2033\u201e\u201f", '"'),
    }
)
"""Characters that plain text writes otherwise, whatever stands beside them."""
_STRAIGHT = str.maketrans({**dict.fromkeys("“”«»", '"'), **dict.fromkeys("‘’", "'")})
PLAIN_MARKS = {
    **{chr(code): plain for code, plain in {**CHARACTERS, **_STRAIGHT}.items() if plain and plain != " "},
    **dict.fromkeys("—―⸺⸻", "--"),
    "…": "...",
}
"""Typographic marks, and what stands for each of them in plain text."""
_DASH = re.compile(r"\s*(?:[—―⸺⸻]|---?)\s*")
_DOTS = re.compile(r"(?:\.\s?){4,}|…\s*\.?|(?:\. ){2}\.")
_TEX_MARK = re.compile(r"``|''")
_BLANK_LINES = re.compile(r"\n[^\S\n]*\n\s*")
_GOES_ON = re.compile(r"[a-z(]|-- [a-z]")  # after a quotation: "Who?" asked she.
_AFTER_QUOTATION = re.compile(r"(?:[\"')]|\.\.\.)$")
_ONLY_MARKS = re.compile(r"[\"')\]]+")
_TITLES = "Lt|Col|Gen|Capt|Sgt|Maj|Cmdr|Adm|Rev|Hon|Gov|Sen|Rep|Messrs|Mme|Mlle|Mt|Ft|No|Fig|Figs|Eq"
_ABBREVIATION = re.compile(rf"(?:^|[\s(\"'])(?:{_TITLES}|[A-HJ-Z])\.$")  # "I." mostly ends a sentence


def normalise(paragraph: str) -> str:
    """Write a paragraph with the marks of plain text, on one line.

    Quotation marks become ``"`` and apostrophes ``'``; where the first mark of the paragraph is a single one, as in
    British books, single ones are the outer ones. Dashes become `` -- ``, dots `` ... ``, en dashes and hyphens of
    Unicode ``-``; other spaces become blanks. Raises ``InputError`` for a NUL character.

    >>> normalise("‘Oh—it’s “he”,’ she said…")
    '"Oh -- it\\'s \\'he\\'," she said ...'
    """
    check_text(paragraph)
    text = paragraph.translate(CHARACTERS)
    is_british = re.match("[^‘“]*‘", text) is not None
    text = _british_marks(text) if is_british else text.translate(_STRAIGHT)
    text = _TEX_MARK.sub('"', _DOTS.sub(" ... ", _DASH.sub(" -- ", text)))
    return re.sub(r"\s+", " ", text).strip()


def _british_marks(text: str) -> str:
    """Write outer single quotation marks as double ones, and inner double marks as single ones.

    A closing single mark, which is also the apostrophe, is one that follows an open quotation, and stands neither
    before a letter or digit nor right behind a letter.
    """
    written, num_open = [], 0
    for place, character in enumerate(text):
        if character == "‘":
            num_open += 1
            character = '"'
        elif character == "’":
            before, after = text[max(place - 1, 0) : place], text[place + 1 : place + 2]
            closes = num_open > 0 and not after.isalnum() and not before.isalpha()
            num_open -= closes
            character = '"' if closes else "'"
        elif character in "“”":
            character = "'"
        written.append(character)
    return "".join(written)


def split_sentences(paragraph: str, language: str = ENGLISH) -> list[str]:
    """Find the sentences of a normalised paragraph; no character but blanks is lost.

    English is split by blingfire with two repairs: what goes on in lower case after a quotation belongs to it, and
    titles and initials, such as ``Lt.``, end no sentence. Other languages, by their ISO 639-1 codes, are split by
    pysbd. A quotation of several sentences is cut into several. Raises ``InputError`` without the library, and for a
    language that it does not know.
    """
    if language != ENGLISH:
        return [sentence.strip() for sentence in _pysbd(language).segment(paragraph) if sentence.strip()]
    found: list[str] = []
    for sentence in map(str.strip, import_extra("blingfire", "sentences").text_to_sentences(paragraph).split("\n")):
        if found and sentence and _belongs_to(sentence, found[-1]):
            found[-1] = f"{found[-1]} {sentence}"
        elif sentence:
            found.append(sentence)
    return found


def _belongs_to(sentence: str, before: str) -> bool:
    after_quotation = _GOES_ON.match(sentence) and _AFTER_QUOTATION.search(before)
    return bool(after_quotation or _ABBREVIATION.search(before) or _ONLY_MARKS.fullmatch(sentence))


@cache
def _pysbd(language: str) -> Any:
    codes = import_extra("pysbd.languages", "sentences").LANGUAGE_CODES
    if language not in codes:
        known = ", ".join(sorted(codes))
        raise InputError(f"no rules for sentences of language {language!r}", remedy=f"give one of {known}")
    return import_extra("pysbd", "sentences").Segmenter(language=language, clean=False)


def sentence_ends(words: Sequence[str], language: str = ENGLISH) -> list[int]:
    """For each sentence of a text, the number of words up to its end; the last sentence ends with the words.

    The words are normalised to find the sentences, but are not changed themselves. Raises ``InputError`` as
    ``normalise`` and ``split_sentences`` do.
    """
    written = [(normalise(word) or word).encode(errors="replace").decode() for word in words]  # half a character is one
    sentences = iter(split_sentences(" ".join(written), language))
    ends, place, limit = list[int](), 0, _num_characters(next(sentences, ""))
    for number, word in enumerate(written):
        while place >= limit and (sentence := next(sentences, None)) is not None:
            limit += _num_characters(sentence)
            if number and ends[-1:] != [number]:
                ends.append(number)
        place += _num_characters(word)
    return [*ends, len(words)]


def _num_characters(text: str) -> int:
    """Count what is no blank, in the sense of Unicode: splitting loses nothing else."""
    return len("".join(text.split()))


def paragraphs_of(text: str) -> Iterator[str]:
    """Cut a text at blank lines; line ends inside a paragraph become blanks."""
    for block in _BLANK_LINES.split(text.replace("\r\n", "\n").strip()):
        if block:
            yield block.replace("\n", " ")


def sentences_of(text: str, language: str = ENGLISH) -> Iterator[tuple[str, ...]]:
    """The words of every sentence of a running text, whose paragraphs are divided by blank lines.

    Paragraphs are normalised and split into sentences, and these are cut into words as treebanks do. Raises
    ``InputError`` as ``normalise`` and ``split_sentences`` do.
    """
    for paragraph in paragraphs_of(text):
        for sentence in split_sentences(normalise(paragraph), language):
            yield words_of(sentence, "treebank")
