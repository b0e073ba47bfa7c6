"""States of incremental reading: what a model knows of sentences after some of their words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from treelm.corpora.vocabulary import Vocabulary
from treelm.errors import InputError


@dataclass(frozen=True, kw_only=True, eq=False)
class IncrementalState:
    """What a model knows of n sentences after some of their words: the words, and what systems add.

    A state never changes: reading on gives a new one.
    """

    words: tuple[tuple[str, ...], ...]  # as they were given, or spelled by their tokens
    tokens: tuple[tuple[int, ...], ...]

    @classmethod
    def own(cls, state: IncrementalState) -> Self:
        """Return a state of this class. Raises ``InputError`` for a state of another system."""
        if not isinstance(state, cls):
            raise InputError("a state of another system", remedy="use a state that this model's start() began")
        return state

    @classmethod
    def begin(cls, num_sentences: int, **fields: Any) -> Self:
        """The state of sentences of which nothing has been read, with the fields that systems add."""
        return cls(words=((),) * num_sentences, tokens=((),) * num_sentences, **fields)

    @property
    def num_sentences(self) -> int:
        """The number of sentences that are read side by side."""
        return len(self.words)

    @property
    def num_tokens_read(self) -> tuple[int, ...]:
        """The number of tokens that have been read of each sentence."""
        return tuple(map(len, self.tokens))

    def check_tokens(self, tokens: Sequence[int | None]) -> None:
        """Raise ``InputError`` unless there is one token, or None, for each sentence."""
        if len(tokens) != self.num_sentences:
            found = f"{len(tokens)} tokens for {self.num_sentences} sentences"
            raise InputError(found, remedy="give one token, or None, for each sentence")

    def after(self, read: Sequence[int | None], vocabulary: Vocabulary, **changed: Any) -> Self:
        """The state after one more token in each sentence, or none where ``read`` has None.

        ``changed`` are the new values of the fields that systems add.
        """
        words, tokens = list(self.words), list(self.tokens)
        for row, token in enumerate(read):
            if token is not None:
                goes_on = bool(tokens[row]) and not vocabulary.ends_word[tokens[row][-1]]
                tokens[row] = (*tokens[row], token)
                before = words[row][:-1] if goes_on else words[row]
                words[row] = (*before, vocabulary.spell(last_word(tokens[row], vocabulary.ends_word)))
        return replace(self, words=tuple(words), tokens=tuple(tokens), **changed)

    def called(self, words: Sequence[str]) -> Self:
        """The same state, in which the last words are written as they were given.

        Their tokens may spell them otherwise.
        """
        renamed = tuple((*before[:-1], word) for before, word in zip(self.words, words, strict=True))
        return replace(self, words=renamed)

    def check_begun(self) -> None:
        """Raise ``InputError`` if a sentence has no word yet."""
        if not all(self.words):
            raise InputError("no words have been read", remedy="extend the state first")


def last_word(tokens: Sequence[int], ends_word: NDArray[np.bool_]) -> Sequence[int]:
    """The tokens of the last word of a sentence, complete or not."""
    start = next((place for place in range(len(tokens) - 1, 0, -1) if ends_word[tokens[place - 1]]), 0)
    return tokens[start:]
