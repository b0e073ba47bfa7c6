"""Reading word by word: stacks and vectors as one state that is never changed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from treelm.corpora.vocabulary import Vocabulary
from treelm.errors import InputError
from treelm.models.base import IncrementalState
from treelm.models.layers.binary_structure import ANY_DEPTH, decoded_spans, word_tree
from treelm.models.shift_reduce.reading import Bank, IntArray, ParserStacks
from treelm.trees.tree import Tree


@dataclass(frozen=True, kw_only=True)
class ParserState(IncrementalState):
    """The stacks of n sentences after some words."""

    words: tuple[tuple[str, ...], ...]  # as they were given, or spelled by their symbols
    symbols: tuple[tuple[int, ...], ...]
    stacks: ParserStacks
    bank: Bank

    @property
    def num_sentences(self) -> int:
        """Sentences that are read side by side."""
        return len(self.words)

    @property
    def num_symbols_read(self) -> tuple[int, ...]:
        """Symbols that each sentence has read."""
        return tuple(map(len, self.symbols))

    def check_length(self, num_given: int, what: str) -> None:
        """Raise ``InputError`` unless there is one for each sentence."""
        if num_given != self.num_sentences:
            found = f"{num_given} {what} for {self.num_sentences} sentences"
            raise InputError(found, remedy=f"give one of the {what} for each sentence")

    def with_symbols(
        self, symbols: Sequence[int | None], vocabulary: Vocabulary, *, stacks: ParserStacks, bank: Bank
    ) -> ParserState:
        """The state with these stacks, after one more symbol in each sentence that did not wait."""
        words, all_symbols = list(self.words), list(self.symbols)
        for row, symbol in enumerate(symbols):
            if symbol is not None:
                words[row] = _spell(vocabulary, words[row], all_symbols[row], symbol)
                all_symbols[row] = (*all_symbols[row], symbol)
        return replace(self, words=tuple(words), symbols=tuple(all_symbols), stacks=stacks, bank=bank)

    def trees(self, vocabulary: Vocabulary) -> list[Tree]:
        """The trees of the actions so far."""
        if any(not words for words in self.words):
            raise InputError("no words have been read", remedy="extend the state first")
        ends_word = vocabulary.ends_word
        trees = []
        for row, (words, symbols) in enumerate(zip(self.words, self.symbols, strict=True)):
            word_of_symbol = np.concatenate([[0], np.cumsum(ends_word[list(symbols[:-1])], dtype=np.int64)])
            trees.append(partial_tree(words, self.stacks.shifted_at[row], word_of_symbol))
        return trees


def partial_tree(words: Sequence[str], shifted_at: Sequence[int], word_of_symbol: IntArray) -> Tree:
    """The tree of the heights at which the boundary and all symbols were shifted; what is open is closed."""
    decisions = [ANY_DEPTH - height for height in shifted_at]
    return word_tree(words, decoded_spans(decisions, ANY_DEPTH), word_of_symbol)


def _spell(vocabulary: Vocabulary, words: tuple[str, ...], before: tuple[int, ...], symbol: int) -> tuple[str, ...]:
    text = vocabulary.symbol(symbol)
    if before and not vocabulary.ends_word[before[-1]]:
        return (*words[:-1], words[-1] + text)
    return (*words, text)
