"""Adapters: our models in other programs, which give texts. Here texts become sentences of words with their places."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from treelm.corpora.encoding import encode_words
from treelm.corpora.tokens import Tokenisation, token_spans
from treelm.errors import InputError
from treelm.models.base import LanguageModel
from treelm.models.scores import SentenceScore


@dataclass(frozen=True, kw_only=True)
class Line:
    """A sentence of a text with the place of each word's end in that text."""

    words: tuple[str, ...]
    ends: NDArray[np.int64]  # (num_words,) characters of the text up to the end of each word
    line_end: int  # characters of the text up to and with the line break


@dataclass(frozen=True, kw_only=True)
class ScoredLine(Line):
    """A sentence of a text with its score."""

    score: SentenceScore

    @property
    def token_ends(self) -> NDArray[np.int64]:
        """(num_tokens,) where the word of each token ends."""
        return self.ends[self.score.word_of_token]


AnyLine = TypeVar("AnyLine", bound=Line)


def lines_of(text: str, how: Tokenisation) -> Iterator[Line]:
    """The lines of a text that have words: each is a sentence."""
    start = 0
    for line in text.split("\n"):
        spans = list(token_spans(line, how))
        if spans:
            words = tuple(line[a:b] for a, b in spans)
            yield Line(words=words, ends=np.array([start + b for _, b in spans]), line_end=start + len(line) + 1)
        start += len(line) + 1


def score_lines(lm: LanguageModel, texts: Sequence[str], how: Tokenisation) -> list[list[ScoredLine]]:
    """The sentences of each text, scored together, each from its beginning."""
    lines = [list(lines_of(text, how)) for text in texts]
    scores = iter(lm.score([line.words for own in lines for line in own]))
    return [[ScoredLine(**vars(line), score=next(scores)) for line in own] for own in lines]


def token_ids(lm: LanguageModel, line: Line) -> list[int]:
    """The tokens of a sentence, as its model reads them."""
    tokens: list[int] = encode_words([line.words], lm.vocabulary).tokens.tolist()
    return tokens


def as_list(texts: str | Sequence[str]) -> list[str]:
    """One text, or several."""
    return [texts] if isinstance(texts, str) else list(texts)


def one_sentence(lines: Sequence[AnyLine], text: str) -> AnyLine:
    """The only sentence of a text; raises ``InputError`` if there are none or several."""
    if len(lines) != 1:
        found = f"{len(lines)} sentences in {text!r}"
        raise InputError(found, remedy="give texts of one line with at least one word")
    return lines[0]
