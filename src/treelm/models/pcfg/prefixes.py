"""Prefixes of a sentence, read word by word: exact probabilities of prefixes, and of every next word.

The prefix probability of Jelinek & Lafferty (1991) is linear in the next word, so one product gives it for all words.
Let g_i be the weights of the symbols that start at fencepost i, given the words before it, and cell (i, k) the inside
probabilities of a span (see ``rules.py``). Then::

    h_j = sum over i < j of right_back(spread(g_i) * left(cell (i, j)))   symbols predicted at j, after a left part
    g_j = close(h_j)                                                      these, and all their first descendants
    p(w_1 .. w_j v ...) = sum over tags of g_j[tag] p(v | tag)            of every next word v

At the start h_0 is the root. h_j is Stolcke's (1995) forward probability. No chart of prefixes is needed, and nothing
depends on later words.

For example, S -> T T is the only rule, and the tag T has two words. After two words only the end can follow.

>>> from treelm.models.pcfg.products import TableRules
>>> table = np.array([[[0.0, 0.0], [0.0, 1.0]]])  # p(S -> B C), of the symbols S and T
>>> one = Prefix.begin(TableRules.of(np.array([1.0, 0.0]), table, np.array([[0.25, 0.75]]))).extend(0)
>>> one.next_words().tolist(), one.extend(1).next_words().tolist()  # both words, and the end
([0.25, 0.75, 0.0], [0.0, 0.0, 1.0])

All values are relative to the probability of the words read so far (Stolcke 1995, section 5.1): every word's cell is
divided by the word's own conditional probability. So g . cell is at most 1 everywhere, however long the sentence.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch

from treelm.models.layers import chart
from treelm.models.pcfg.rules import Array, Rules


@dataclass(frozen=True, eq=False)
class Column:
    """The cells (i, j) of all spans that end at one fencepost j, i = 0 .. j - 1."""

    cells: Array  # (j, S)
    lefts: Array  # (j, R) their left parts


@dataclass(frozen=True, eq=False)
class Prefix:
    """The state after some words of a sentence. It is never changed: ``extend`` returns a new one."""

    rules: Rules
    columns: tuple[Column, ...]
    starting: tuple[Array, ...]  # spread(g_0) .. spread(g_j): weights of the rules that start there, (R,) each
    of_tags: tuple[Array, ...]  # g_0 .. g_j of tags: p(tag of the next word | words), (T,) each
    end: float  # p(end | words)

    @classmethod
    def begin(cls, rules: Rules) -> Self:
        """The state before the first word."""
        symbols = rules.close(rules.root)
        return cls(rules, (), (rules.spread(symbols),), (symbols[rules.tags],), 0.0)

    @property
    def num_words(self) -> int:
        """The number of words that have been read."""
        return len(self.columns)

    def next_words(self) -> Array:
        """p(next word | words) and, last, p(end | words): (V + 1,)."""
        return np.append(self.of_tags[-1] @ self.rules.words, self.end)

    def probability_of(self, word: int) -> float:
        """p(next word | words) of one word."""
        return float(self.of_tags[-1] @ self.rules.words[:, word])

    def extend(self, word: int) -> Self:
        """The state after one more word."""
        rules, probability = self.rules, self.probability_of(word)
        j = self.num_words + 1
        cells = np.empty((j, rules.num_symbols))
        cells[-1] = rules.word_cell(rules.words[:, word] / (probability or 1.0))
        sums = np.zeros((j - 1, self.starting[0].shape[0]))
        for k in range(j - 1, 0, -1):  # spans (k, j) are right parts of spans (i, j), i < k
            sums[:k] += self.columns[k - 1].lefts * rules.right(cells[k])
            cells[k - 1] = rules.head(sums[k - 1])
        column = Column(cells, rules.left(cells))
        expected = rules.right_back(np.einsum("ir,ir->r", np.stack(self.starting), column.lefts))
        symbols = rules.close(expected)
        return type(self)(
            rules=rules,
            columns=(*self.columns, column),
            starting=(*self.starting, rules.spread(symbols)),
            of_tags=(*self.of_tags, symbols[rules.tags]),
            end=float(rules.root @ cells[0]),
        )

    def constituents(self, *, ended: bool) -> Array:
        """The expected number of every symbol over every span, given the words: (n + 1, n + 1, S).

        With ``ended`` the words are the whole sentence; otherwise any words may follow, and constituents that end
        within the words so far are counted. It is the derivative of log p by the log of the cells, computed by one pass
        back through all ``extend``.
        """
        rules, n = self.rules, self.num_words
        of_lefts = [np.zeros_like(column.lefts) for column in self.columns]
        whole = rules.root / self.end if ended else rules.root
        if not ended:
            self._back_from_prefix(of_lefts)
        found = np.zeros((n + 1, n + 1, rules.num_symbols))
        for j in range(n, 0, -1):
            column = self.columns[j - 1]
            of_sums = np.zeros((j, column.lefts.shape[1]))
            for i in range(j):
                of_cell = rules.left_back(of_lefts[j - 1][i])
                if i:
                    of_right = np.einsum("ir,ir->r", of_sums[:i], self.columns[i - 1].lefts)
                    of_cell += rules.right_back(of_right)
                if (i, j) == (0, n):
                    of_cell += whole
                symbols, of_sums[i] = rules.head_back(of_cell)
                found[i, j] = symbols * column.cells[i]
            for k in range(1, j):
                of_lefts[k - 1] += of_sums[:k] * rules.right(column.cells[k])
        return found

    def _back_from_prefix(self, of_lefts: Sequence[Array]) -> None:
        """Add to ``of_lefts``, the derivatives by left parts, what comes from the symbols predicted at fenceposts."""
        rules = self.rules
        ahead = np.zeros(rules.num_symbols)
        ahead[rules.tags] = 1.0
        starting = np.stack(self.starting)
        of_starting = np.zeros_like(starting)
        for j in range(self.num_words, 0, -1):
            of_rules = rules.right(rules.close_back(ahead))
            of_lefts[j - 1] += starting[:j] * of_rules
            of_starting[:j] += self.columns[j - 1].lefts * of_rules
            ahead = rules.spread_back(of_starting[j - 1])


@dataclass(frozen=True, eq=False)
class MixedPrefix:
    """The state after some words if a sentence is of one of several grammars, which is drawn before its first word.

    There is a ``Prefix`` for each grammar; ``weights`` are the probabilities of the grammars given the words.
    """

    prefixes: tuple[Prefix, ...]
    weights: Array

    @classmethod
    def begin(cls, grammars: Sequence[Rules]) -> Self:
        """The state before the first word, where all grammars are equally probable."""
        return cls(tuple(map(Prefix.begin, grammars)), np.full(len(grammars), 1 / len(grammars)))

    @property
    def end(self) -> float:
        """p(end | words)."""
        return float(self.weights @ np.array([one.end for one in self.prefixes]))

    def next_words(self) -> Array:
        """p(next word | words) and, last, p(end | words): (V + 1,)."""
        return self.weights @ np.stack([one.next_words() for one in self.prefixes])

    def extend(self, word: int) -> tuple[Self, float]:
        """The state after one more word, and p(word | words before)."""
        of_each = np.array([one.probability_of(word) for one in self.prefixes])
        probability = float(self.weights @ of_each)
        weights = self.weights * of_each / probability if probability else self.weights
        return type(self)(tuple(one.extend(word) for one in self.prefixes), weights), probability

    def constituents(self, *, ended: bool) -> Array:
        """The expected number of every symbol over every span: see ``Prefix.constituents``."""
        weights = self.weights
        if ended:
            weights = weights * np.array([one.end for one in self.prefixes])
            weights = weights / weights.sum()
        found: Array = np.tensordot(weights, np.stack([one.constituents(ended=ended) for one in self.prefixes]), 1)
        return found


def choose_spans(gains: Array) -> list[tuple[int, int]]:
    """The spans of the binary tree with the largest sum of ``gains`` (n + 1, n + 1), which are 0 or more.

    With expected numbers as gains it is the tree of minimum Bayes risk (Goodman 1996). Where all gains are 0 the tree
    branches to the right.
    """
    lengths = torch.tensor([len(gains) - 1])
    chosen = chart.best_trees(torch.from_numpy(gains)[None], lengths)[0]
    return [(i, j) for i, j in chosen.nonzero().tolist() if j - i > 1 or gains[i, j] > 0]
