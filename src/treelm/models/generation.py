"""Sampling sentences from a model, token by token, the same way for every system."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import torch
from pydantic import Field
from torch import Tensor

from treelm.configs import Number, Size, configuration, from_keywords
from treelm.corpora.tokens import BLANKS
from treelm.errors import InputError
from treelm.models.capabilities import Parser, require
from treelm.trees.tree import Tree, from_flat

if TYPE_CHECKING:
    from treelm.models.base import LanguageModel
    from treelm.models.states import IncrementalState

_COLDEST = 1e-3  # colder, and the largest score would overflow
MAX_TOKENS_PER_WORD = 100
"""The number of tokens after which a word that has not ended is cut off with its sentence: a poor model may never end
one."""


@configuration
class Drawing:
    """How sentences are sampled."""

    num_sentences: Number = 10
    seed: Number = 1
    max_words: Size = 60
    """A sentence that has not ended after this many words is cut there."""
    temperature: Annotated[float, Field(ge=_COLDEST)] = 1.0
    """The number that log probabilities are divided by."""
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Below 1, each token is sampled from the most probable tokens that together have this probability (nucleus
    sampling, Holtzman et al. 2020)."""


class Drawn(NamedTuple):
    """A sentence that was sampled."""

    words: list[str]
    tree: Tree | None
    """The model's tree over the sentence; None if no tree was asked for."""


def generate(lm: LanguageModel, *, trees: bool = False, **settings: Any) -> Iterator[Drawn]:
    """Sample sentences and, with ``trees``, the model's tree over each; the same seed gives the same sentences.

    ``settings`` are those of ``Drawing``. Tokens are sampled one at a time, whatever the vocabulary; a word ends with a
    token that ends words. A word that has not ended after ``MAX_TOKENS_PER_WORD`` tokens is left out, and its sentence
    ends before it.

    Raises ``InputError`` for values out of range, for a model that gives words no probabilities, and with ``trees`` for
    a model that has none.
    """
    lm.require_words()
    if trees:
        require(lm, Parser)
    how = from_keywords(Drawing, settings, where="")
    generator = torch.Generator().manual_seed(how.seed)
    spelled = (lm.vocabulary.spell([index]) for index in range(len(lm.vocabulary)))
    unwritable = torch.tensor([not text.strip(BLANKS + "\0") for text in spelled])  # no word is such a token alone

    def draw(log_probs: Tensor) -> int:
        if not torch.isfinite(log_probs).any():
            raise InputError("no token can follow: the beam is empty", remedy="raise action_beam or word_beam")
        probs = (log_probs / how.temperature).softmax(0)
        if how.top_p < 1:
            ordered, order = probs.sort(descending=True, stable=True)
            probs = probs.index_fill(0, order[ordered.cumsum(0) - ordered >= how.top_p], 0.0)
        return int(torch.multinomial(probs, 1, generator=generator))

    samples = (_sample(lm, draw, unwritable, how.max_words) for _ in range(how.num_sentences))
    return (Drawn(words, _tree(lm, state, words) if trees and words else None) for words, state in samples)


def _sample(
    lm: LanguageModel, draw: Callable[[Tensor], int], unwritable: Tensor, max_words: int
) -> tuple[list[str], IncrementalState]:
    """The words of a sampled sentence, and the state after the last of them."""
    end, ends_word = len(lm.vocabulary), torch.from_numpy(lm.vocabulary.ends_word)
    state = whole = lm.start()
    words, pieces = list[str](), list[int]()
    while len(words) < max_words and len(pieces) < MAX_TOKENS_PER_WORD:
        log_probs = lm.next_word_log_probs(state)[0].cpu().clone()
        log_probs[:end][unwritable & ~(ends_word & bool(pieces))] = -torch.inf
        if pieces or not words:
            log_probs[end] = -torch.inf  # a sentence has at least one word, and does not end within one
        index = draw(log_probs)
        if index == end:
            break
        pieces.append(index)
        state = lm.extend_tokens(state, [index])
        if ends_word[index]:
            words.append(lm.vocabulary.spell(pieces))
            pieces, whole = [], state
    return words, whole


def _tree(lm: LanguageModel, state: IncrementalState, words: list[str]) -> Tree:
    """The model's tree over the words as they are written; the model itself knows tokens only."""
    coming = iter(words)
    (tree,) = require(lm, Parser).partial_trees(state)
    return from_flat([next(coming) if isinstance(item, str) else item for item in tree.flat()])
