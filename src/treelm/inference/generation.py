"""Drawing sentences from a model, word by word, the same way for every system."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from treelm.errors import InputError
from treelm.models.base import SyntacticLM
from treelm.trees.tree import Tree


def generate(
    lm: SyntacticLM, *, num_sentences: int, seed: int, max_words: int = 100, temperature: float = 1.0
) -> Iterator[tuple[list[str], Tree | None]]:
    """Sample sentences with the model's tree over each; the same seed gives the same sentences.

    A sentence that has not ended after ``max_words`` words is cut there. Temperature divides the log probabilities; 1
    samples from the model itself.
    """
    if temperature <= 0:
        raise InputError(f"temperature {temperature}", remedy="give a number above 0")
    generator = torch.Generator().manual_seed(seed)
    for _ in range(num_sentences):
        yield _sample(lm, generator, max_words, temperature)


def _sample(
    lm: SyntacticLM, generator: torch.Generator, max_words: int, temperature: float
) -> tuple[list[str], Tree | None]:
    state, words = lm.start(), list[str]()
    ends_word = lm.vocabulary.ends_word
    if not ends_word.all():
        raise InputError("a model of subwords or characters", remedy="generate with a model of whole words")
    while len(words) < max_words:
        log_probs = lm.next_word_log_probs(state)[0] / temperature
        if not words:
            log_probs[-1] = -torch.inf  # a sentence has at least one word
        index = int(torch.multinomial(log_probs.softmax(0), 1, generator=generator))
        if index == len(lm.vocabulary):
            break
        words.append(lm.vocabulary.symbol(index))
        state = lm.extend(state, [words[-1]])
    return words, lm.partial_trees(state)[0] if words else None
