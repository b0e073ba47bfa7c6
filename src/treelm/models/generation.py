"""Drawing sentences from a model, token by token, the same way for every system."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from treelm.corpora.tokens import BLANKS
from treelm.errors import InputError
from treelm.models.capabilities import Parser, has, require
from treelm.trees.tree import Tree, from_flat

if TYPE_CHECKING:
    from treelm.models.base import LanguageModel
    from treelm.models.states import IncrementalState

_COLDEST = 1e-3  # colder, and the largest score would overflow
MAX_TOKENS_PER_WORD = 100
"""A word that has not ended by then is cut off with the sentence: a poor model may never end one."""


class Drawn(NamedTuple):
    """A sentence that was drawn."""

    words: list[str]
    tree: Tree | None
    """The model's tree over it, if that was asked for and it has one."""


def generate(
    lm: LanguageModel,
    *,
    num_sentences: int,
    seed: int,
    max_words: int = 60,
    temperature: float = 1.0,
    top_p: float = 1.0,
    trees: bool = False,
) -> Iterator[Drawn]:
    """Sample sentences and, if asked, the model's tree over each (None if it has none); a seed gives the same ones.

    A token is drawn at a time, whatever the vocabulary: words end where a token ends a word. A word of
    ``MAX_TOKENS_PER_WORD`` tokens without an end is left out, and its sentence ends before it, as one that has not
    ended after ``max_words`` does. ``temperature`` divides the log probabilities; with ``top_p`` below 1 the likeliest
    tokens are drawn from that together have this probability (nucleus sampling, Holtzman et al. 2020).

    Raises ``InputError`` for numbers that cannot be.
    """
    lm.require_words()
    for name, value, is_valid, remedy in (
        ("num_sentences", num_sentences, num_sentences >= 0, "give 0 or more"),
        ("seed", seed, 0 <= seed < 2**63, "give a whole number of at least 0 and below 2^63"),
        ("max_words", max_words, max_words >= 1, "give 1 or more"),
        ("temperature", temperature, _COLDEST <= temperature < math.inf, f"give a finite number of {_COLDEST} or more"),
        ("top_p", top_p, 0 < top_p <= 1, "give a number above 0, at most 1"),
    ):
        if not is_valid:
            raise InputError(f"{name} = {value}", remedy=remedy)
    generator = torch.Generator().manual_seed(seed)
    spelled = (lm.vocabulary.spell([index]) for index in range(len(lm.vocabulary)))
    unwritable = torch.tensor([not text.strip(BLANKS + "\0") for text in spelled])  # no word is such a token alone

    def draw(log_probs: Tensor) -> int:
        if not torch.isfinite(log_probs).any():
            raise InputError("no token can follow: the beam is empty", remedy="raise action_beam or word_beam")
        probs = (log_probs / temperature).softmax(0)
        if top_p < 1:
            ordered, order = probs.sort(descending=True, stable=True)
            probs = probs.index_fill(0, order[ordered.cumsum(0) - ordered >= top_p], 0.0)
        return int(torch.multinomial(probs, 1, generator=generator))

    samples = (_sample(lm, draw, unwritable, max_words) for _ in range(num_sentences))
    is_parsed = trees and has(lm, Parser)
    return (Drawn(words, _tree(lm, state, words) if is_parsed and words else None) for words, state in samples)


def _sample(
    lm: LanguageModel, draw: Callable[[Tensor], int], unwritable: Tensor, max_words: int
) -> tuple[list[str], IncrementalState]:
    """The words of a sentence, and the state after the last of them."""
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
    """The model's tree with the words as they are written; a model knows its tokens only."""
    coming = iter(words)
    (tree,) = require(lm, Parser).partial_trees(state)
    return from_flat([next(coming) if isinstance(item, str) else item for item in tree.flat()])
