"""Adapters: our models in other programs, which give texts. Here texts become sentences of words with their places."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from treelm.corpora.encoding import encode_words
from treelm.corpora.tokens import Tokenisation, token_spans
from treelm.models.base import LanguageModel
from treelm.models.scores import SentenceScore


@dataclass(frozen=True)
class Line:
    """A sentence of a text with its score, and places in that text."""

    words: tuple[str, ...]
    ends: NDArray[np.int64]  # (num_words,) characters of the text up to the end of each word
    line_end: int  # characters of the text up to and with the line break
    score: SentenceScore

    @property
    def token_ends(self) -> NDArray[np.int64]:
        """(num_tokens,) where the word of each token ends."""
        return self.ends[self.score.word_of_token]


def score_lines(lm: LanguageModel, texts: Sequence[str], how: Tokenisation) -> list[list[Line]]:
    """The lines of each text that have words, each a sentence, scored together, each from its beginning."""
    lines = [list(_lines(text, how)) for text in texts]
    scores = iter(lm.score([words for own in lines for words, _, _ in own]))
    return [[Line(*line, next(scores)) for line in own] for own in lines]


def _lines(text: str, how: Tokenisation) -> Iterator[tuple[tuple[str, ...], NDArray[np.int64], int]]:
    start = 0
    for line in text.split("\n"):
        if spans := list(token_spans(line, how)):
            yield tuple(line[a:b] for a, b in spans), np.array([start + b for _, b in spans]), start + len(line) + 1
        start += len(line) + 1


def token_ids(lm: LanguageModel, words: Sequence[str]) -> list[int]:
    """The tokens of a sentence, as its model reads them."""
    tokens: list[int] = encode_words([words], lm.vocabulary).tokens.tolist()
    return tokens
