"""The most probable tree of a sentence, its labels included. A maximum over sums has no matrix product: it is slow."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from treelm.models.pcfg.products import ProductRules, TableRules
from treelm.models.pcfg.rules import Array


def viterbi(rules: ProductRules, words: Sequence[int]) -> tuple[float, list[tuple[int, int, int]]]:
    """Log p(words, best tree), and the spans (start, end, symbol) of that tree, words included.

    With low-rank rules a derivation has the factor of every rule too, and the best derivation is found.
    """
    chart = _Chart(rules, words)
    n = len(words)
    top = chart.log_root + chart.cells[0, n]
    best = int(top.argmax())
    spans, open_spans = list[tuple[int, int, int]](), [(0, n, best)]
    while open_spans:
        i, j, symbol = open_spans.pop()
        spans.append((i, j, symbol))
        if j - i > 1:
            open_spans += chart.children(i, j, symbol)
    return float(top[best]), spans


class _Chart:
    """Log p of the best tree of every span and symbol, (n + 1, n + 1, S)."""

    def __init__(self, rules: ProductRules, words: Sequence[int]) -> None:
        n, num = len(words), rules.num_nonterminals
        with np.errstate(divide="ignore"):
            self.log_root, self._head, log_words = np.log(rules.root), np.log(rules.of_head), np.log(rules.words)
            self._left, self._right = np.log(rules.of_left), np.log(rules.of_right)
        self._is_table = isinstance(rules, TableRules)
        self.cells = np.full((n + 1, n + 1, rules.num_symbols), -np.inf)
        rank = rules.num_symbols if self._is_table else rules.of_head.shape[1]
        self._lefts, self._rights = (np.full((n + 1, n + 1, rank), -np.inf) for _ in range(2))
        for width in range(1, n + 1):
            for i in range(n + 1 - width):
                j = i + width
                if width == 1:
                    self.cells[i, j, num:] = log_words[:, words[i]]
                else:
                    self.cells[i, j, :num] = (self._head + self._splits(i, j).max(0)).max(1)
                self._put(i, j)

    def _put(self, i: int, j: int) -> None:
        cell = self.cells[i, j]
        if self._is_table:  # every pair of children is a factor
            self._lefts[i, j] = self._rights[i, j] = cell
        else:
            self._lefts[i, j], self._rights[i, j] = (self._left + cell).max(1), (self._right + cell).max(1)

    def _splits(self, i: int, j: int) -> Array:
        """Both parts together by split and factor: (splits, R)."""
        left, right = self._lefts[i, i + 1 : j], self._rights[i + 1 : j, j]
        if self._is_table:
            left, right = np.repeat(left, left.shape[1], -1), np.tile(right, left.shape[1])
        found: Array = left + right
        return found

    def children(self, i: int, j: int, symbol: int) -> list[tuple[int, int, int]]:
        """The parts of the best split, the left one last."""
        splits = self._splits(i, j) + self._head[symbol]
        place, factor = divmod(int(splits.argmax()), splits.shape[1])
        k = i + 1 + place
        left = int((self._left[factor] + self.cells[i, k]).argmax())
        right = int((self._right[factor] + self.cells[k, j]).argmax())
        return [(k, j, right), (i, k, left)]
