"""Reading word by word: stacks and vectors as one state that is never changed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from treelm.corpora.encoding import word_of_symbol
from treelm.corpora.vocabulary import Vocabulary
from treelm.models.base import TextState
from treelm.models.layers.binary_structure import ANY_DEPTH, decoded_spans, word_tree
from treelm.models.shift_reduce.reading import Bank, IntArray, ParserStacks
from treelm.trees.tree import Tree


@dataclass(frozen=True, kw_only=True)
class ParserState(TextState):
    """The stacks of n sentences after some words."""

    stacks: ParserStacks
    bank: Bank

    def trees(self, vocabulary: Vocabulary) -> list[Tree]:
        """The trees of the actions so far."""
        self.check_begun()
        return [
            partial_tree(words, self.stacks.shifted_at[row], word_of_symbol(np.array(symbols), vocabulary.ends_word))
            for row, (words, symbols) in enumerate(zip(self.words, self.symbols, strict=True))
        ]


def partial_tree(words: Sequence[str], shifted_at: Sequence[int], word_numbers: IntArray) -> Tree:
    """The tree of the heights at which the boundary and all symbols were shifted; what is open is closed."""
    decisions = [ANY_DEPTH - height for height in shifted_at]
    return word_tree(words, decoded_spans(decisions, ANY_DEPTH), word_numbers)
