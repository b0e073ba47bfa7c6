"""Records of the values that determine the tree of a sentence: figures draw them without knowing the system.

Each system documents which of them its ``structure`` returns. Comparisons store them as plain values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from treelm.corpora.encoding import encode_words
from treelm.corpora.vocabulary import Vocabulary
from treelm.errors import InputError

BOUNDARY = "<s>"


@dataclass(frozen=True, kw_only=True)
class Distances:
    """The syntactic distance before each token: a word, or a part of one."""

    tokens: tuple[str, ...]
    values: tuple[float, ...]
    begins_word: tuple[bool, ...]


@dataclass(frozen=True, kw_only=True)
class SpanWeights:
    """Attention over spans: row t, column i is the weight of the span from token i to token t - 1."""

    tokens: tuple[str, ...]  # with the boundary before and after the sentence
    weights: tuple[tuple[float, ...], ...]  # row t has t values
    reach: tuple[int, ...]  # the longest span that row t may attend to


@dataclass(frozen=True, kw_only=True)
class SlotSpans:
    """The span that each slot of a memory covers after every word: positions ``start <= i < end``."""

    tokens: tuple[str, ...]  # with the boundary
    decisions: tuple[int, ...]  # the slot that each token attaches to
    spans: tuple[tuple[tuple[int, int] | None, ...], ...]  # [token][slot]; None: an empty slot


@dataclass(frozen=True, kw_only=True)
class StackAttention:
    """What each position of a derivation may attend to: START, opening brackets, words and closing brackets."""

    tokens: tuple[str, ...]
    seen: tuple[tuple[int, ...], ...]  # of each position, the positions that it sees, itself last
    composes: tuple[bool, ...]  # positions that see the parts of a constituent alone, and stand for it from then on
    weights: tuple[tuple[float, ...], ...] = ()  # of what each sees: the last layer's attention, the mean of its heads


@dataclass(frozen=True, kw_only=True)
class AttentionWeights:
    """What each position of a sentence looks at; rows are the positions that look, and sum to 1.

    A row of PaLM is 0 where there is no span to look at.
    """

    tokens: tuple[str, ...]  # of positions: the boundary, words and, of grammars, brackets
    weights: NDArray[np.float64]  # (H, P, P), or (P, P) of one head


@dataclass(frozen=True, kw_only=True)
class StackTape:
    """The stack after every word, and on how many built constituents' tape each word read so far is."""

    tokens: tuple[str, ...]
    stacks: tuple[tuple[tuple[int, int], ...], ...]  # after each token, spans ``start <= i < end``, the bottom first
    depths: tuple[tuple[int, ...], ...]  # after token k, of the tokens 0 to k


@dataclass(frozen=True, kw_only=True)
class UsedRule:
    """A rule of a grammar, and how often it stands in the trees of some sentences."""

    parent: str
    children: tuple[str, ...]  # preterminals with their most probable words
    count: int
    probability: float


Structure = Distances | SpanWeights | SlotSpans | StackAttention | StackTape


def tokens_of_words(words: Sequence[str], vocabulary: Vocabulary) -> tuple[tuple[str, ...], NDArray[np.bool_]]:
    """The names of a sentence's tokens, and which of them begin a word.

    Where each word is one token, the names are the words themselves. Raises ``InputError`` for a sentence without
    words.
    """
    if not words:
        raise InputError("a sentence without words", remedy="give one with words")
    tokens = encode_words([words], vocabulary).tokens
    begins_word = np.append(True, vocabulary.ends_word[tokens[:-1]])
    names = words if begins_word.all() else [vocabulary.shown(int(token)) for token in tokens]
    return tuple(names), begins_word
