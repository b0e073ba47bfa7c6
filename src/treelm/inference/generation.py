"""Drawing sentences from a model, token by token, the same way for every system."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from treelm.corpora.tokens import BLANKS
from treelm.errors import InputError
from treelm.models.base import IncrementalState, LanguageModel
from treelm.models.capabilities import Parser, has, require
from treelm.trees.tree import Tree, from_flat

_COLDEST = 1e-3
MAX_TOKENS_PER_WORD = 100
"""A word that has not ended by then is cut off with the sentence: a poor model may never end one."""


@dataclass(frozen=True, kw_only=True)
class Drawing:
    """Settings of how to draw."""

    max_words: int = 100
    """A sentence that has not ended after so many words is cut there."""
    temperature: float = 1.0
    """Divides the log probabilities; 1 samples from the model itself."""
    top_p: float = 1.0
    """Draw from the likeliest tokens that together have this probability (nucleus sampling, Holtzman et al. 2020)."""

    def __post_init__(self) -> None:
        """Check ranges; raises ``InputError`` naming the field."""
        if self.max_words < 1:
            raise InputError(f"max_words = {self.max_words}", remedy="give 1 or more")
        if not _COLDEST <= self.temperature < math.inf:  # colder, and the largest score would overflow
            remedy = f"give a finite number of at least {_COLDEST}"
            raise InputError(f"temperature = {self.temperature}", remedy=remedy)
        if not 0 < self.top_p <= 1:
            raise InputError(f"top_p = {self.top_p}", remedy="give a number above 0, at most 1")


_DEFAULT = Drawing()


def generate(
    lm: LanguageModel, *, num_sentences: int, seed: int, drawing: Drawing = _DEFAULT, with_trees: bool = True
) -> Iterator[tuple[list[str], Tree | None]]:
    """Sample sentences and, if asked, the model's tree over each (None if it has none); a seed gives the same ones.

    A token is drawn at a time, whatever the vocabulary: words end where a token ends a word. A word of
    ``MAX_TOKENS_PER_WORD`` tokens without an end is left out, and its sentence ends before it.

    Raises ``InputError`` for numbers that cannot be.
    """
    lm.require_words()
    if num_sentences < 0:
        raise InputError(f"num_sentences = {num_sentences}", remedy="give 0 or more")
    if not 0 <= seed < 2**63:
        raise InputError(f"seed = {seed}", remedy="give a whole number of at least 0 and below 2^63")
    generator = torch.Generator().manual_seed(seed)
    spelled = (lm.vocabulary.spell([index]) for index in range(len(lm.vocabulary)))
    unwritable = torch.tensor([not text.strip(BLANKS + "\0") for text in spelled])  # no word is such a token alone
    samples = (_sample(lm, generator, drawing, unwritable) for _ in range(num_sentences))
    is_parsed = with_trees and has(lm, Parser)
    return ((words, _tree(lm, state, words) if is_parsed and words else None) for words, state in samples)


def _sample(
    lm: LanguageModel, generator: torch.Generator, drawing: Drawing, unwritable: Tensor
) -> tuple[list[str], IncrementalState]:
    """The words of a sentence, and the state after the last of them."""
    end, ends_word = len(lm.vocabulary), lm.vocabulary.ends_word
    state = whole = lm.start()
    words, pieces = list[str](), list[int]()
    while len(words) < drawing.max_words and len(pieces) < MAX_TOKENS_PER_WORD:
        log_probs = lm.next_word_log_probs(state)[0].cpu().clone()
        log_probs[:end][unwritable & ~(torch.from_numpy(ends_word) & bool(pieces))] = -torch.inf
        if pieces or not words:
            log_probs[end] = -torch.inf  # a sentence has at least one word, and does not end within one
        index = _draw(log_probs, generator, drawing)
        if index == end:
            break
        pieces.append(index)
        state = lm.extend_tokens(state, [index])
        if ends_word[index]:
            words.append(lm.vocabulary.spell(pieces))
            pieces, whole = [], state
    return words, whole


def _tree(lm: LanguageModel, state: IncrementalState, words: list[str]) -> Tree:
    """The model's tree with the words as they are written; a model knows its tokens only."""
    coming = iter(words)
    (tree,) = require(lm, Parser).partial_trees(state)
    return from_flat([next(coming) if isinstance(item, str) else item for item in tree.flat()])


def _draw(log_probs: Tensor, generator: torch.Generator, drawing: Drawing) -> int:
    if not torch.isfinite(log_probs).any():
        raise InputError("no token can follow: the beam is empty", remedy="raise action_beam or word_beam")
    probs = (log_probs / drawing.temperature).softmax(0)
    if drawing.top_p < 1:
        ordered, order = probs.sort(descending=True, stable=True)
        probs = probs.index_fill(0, order[ordered.cumsum(0) - ordered >= drawing.top_p], 0.0)
    return int(torch.multinomial(probs, 1, generator=generator))
