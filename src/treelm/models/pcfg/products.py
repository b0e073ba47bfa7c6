"""Rules of induced grammars: a table of all of them, or products of factors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from treelm.models.pcfg.rules import Array, Rules

_TOLERANCE, _MOST_STEPS = 1e-15, 100  # of Newton's method, which takes about five steps, more near criticality


@dataclass(frozen=True, eq=False)
class ProductRules(Rules):
    """p(A -> B C) = sum over r of head[A, r] left[r, B] right[r, C], over N nonterminals, then T tags.

    Low-rank rules (Yang et al. 2021) have few r. Simple rules (Liu et al. 2023) have r = A, and the identity as head:
    p(A -> B C) = left[A, B] right[A, C]. There are no unary rules; a tag may be at the top, of a sentence of one word.
    """

    root: Array
    words: Array
    of_head: Array  # (N, R), rows sum to 1
    of_left: Array  # (R, S), rows sum to 1
    of_right: Array  # (R, S), rows sum to 1

    @property
    def num_nonterminals(self) -> int:
        """The number of nonterminals N."""
        return len(self.of_head)

    @property
    def tags(self) -> slice:  # type: ignore[override]
        """Tags are the last symbols."""
        return slice(self.num_nonterminals, self.num_symbols)

    @cached_property
    def corners(self) -> Array:
        """p(first child | nonterminal), (N, S)."""
        found: Array = self.of_head @ (self.of_left * self.of_right.sum(1, keepdims=True))
        return found

    @cached_property
    def chains(self) -> Array:
        """The closure (N, N) of chains of first children: (I - P)^-1 of the probabilities P among nonterminals."""
        num = self.num_nonterminals
        return _chains(self.corners[:, :num], self.corners[:, num:].sum(1))

    def left(self, cells: Array) -> Array:
        """Multiply with the left factors."""
        return cells @ self.of_left.T

    def right(self, cells: Array) -> Array:
        """Multiply with the right factors."""
        return cells @ self.of_right.T

    def left_back(self, of_parts: Array) -> Array:
        """Multiply with the transposed left factors."""
        return of_parts @ self.of_left

    def right_back(self, of_parts: Array) -> Array:
        """Multiply with the transposed right factors."""
        return of_parts @ self.of_right

    def head(self, sums: Array) -> Array:
        """Multiply with the heads; only nonterminals are over two words or more."""
        return np.concatenate([self.of_head @ sums, np.zeros(self.words.shape[0])])

    def head_back(self, of_cell: Array) -> tuple[Array, Array]:
        """Multiply with the transposed heads; there are no unary rules."""
        return of_cell, self.spread(of_cell)

    def word_cell(self, of_tags: Array) -> Array:
        """Only tags are over one word."""
        return np.concatenate([np.zeros(self.num_nonterminals), of_tags])

    def close(self, symbols: Array) -> Array:
        """From predicted symbols to nonterminals, then to tags, along first children."""
        num = self.num_nonterminals
        above = symbols[:num] @ self.chains
        return np.concatenate([above, symbols[num:] + above @ self.corners[:, num:]])

    def close_back(self, symbols: Array) -> Array:
        """From tags to nonterminals, along first children."""
        num = self.num_nonterminals
        below = self.chains @ (symbols[:num] + self.corners[:, num:] @ symbols[num:])
        return np.concatenate([below, symbols[num:]])

    def spread(self, symbols: Array) -> Array:
        """Multiply with the transposed heads."""
        return symbols[: self.num_nonterminals] @ self.of_head

    def spread_back(self, of_rules: Array) -> Array:
        """Multiply with the heads."""
        return self.head(of_rules)

    def mass(self) -> Array:
        """The probability that the tree below each symbol is finite: Newton's method from 0, which only rises.

        Let B(x, y) = head (left x * right y), f(x) = B(x, x) and J its slope at x. A step d solves
        (I - J) d = f(x) - x, and f(x) - x is B(d, d) after it. As rules sum to 1, (I - J) (1 - x) = f(x) - x +
        B(1 - x, 1 - x), by which I - J is inverted; after the step 1 - x is (I - J)^-1 B(1 - x, 1 - x). So nothing is
        ever subtracted: masses keep their digits in grammars that hardly ever, or almost surely, come to an end.
        """
        num = self.num_nonterminals
        tags = self.word_cell(np.ones(len(self.words)))
        mass, is_finite = tags, self._may_be_finite(tags)
        beyond, rise = np.concatenate([np.ones(num), np.zeros(len(self.words))]), self._pairs(tags)
        for _ in range(_MOST_STEPS):
            left, right = self.left(mass), self.right(mass)
            slope = (self.of_head * right) @ self.of_left[:, :num] + (self.of_head * left) @ self.of_right[:, :num]
            rest = self._pairs(beyond) + slope[:, ~is_finite].sum(1)
            on = np.flatnonzero(is_finite & (beyond[:num] > 0))
            if not on.size:
                break
            scale = beyond[on]
            chains = _chains(slope[np.ix_(on, on)] * scale / scale[:, None], (rise + rest)[on] / scale)
            step = np.zeros_like(mass)
            step[on], beyond[on] = (scale * (chains @ (part[on] / scale)) for part in (rise, rest))
            mass, rise = mass + step, self._pairs(step)
            if not (step > _TOLERANCE * mass).any():
                break
        return mass

    def _pairs(self, symbols: Array) -> Array:
        """B(x, x) of ``mass``, (N,)."""
        found: Array = self.of_head @ (self.left(symbols) * self.right(symbols))
        return found

    def _may_be_finite(self, tags: Array) -> NDArray[np.bool_]:
        """Whether each nonterminal has a finite tree (N,): it has none if rules of probability 1 lead back to it."""
        able = tags
        for _ in range(self.num_nonterminals):
            able = np.concatenate([self._pairs(able) > 0, tags[self.tags]])
        return able[: self.num_nonterminals] > 0

    def conditioned(self, mass: Array) -> Self:
        """Multiply every factor by the mass of its symbol, and normalise: the rules keep their form.

        A nonterminal without finite trees, which is in no tree now, gets tags as children, so that chains end.
        """
        left, right = self.of_left * mass, self.of_right * mass
        tags, top = self._any_tag(), self.root * mass
        return replace(
            self,
            root=top / top.sum(),
            of_head=_normalised(self.of_head * left.sum(1) * right.sum(1), self.of_head),
            of_left=_normalised(left, tags),
            of_right=_normalised(right, tags),
        )

    def _any_tag(self) -> Array:
        """A distribution over symbols (S,): all tags are equally probable."""
        return self.word_cell(np.full(len(self.words), 1 / len(self.words)))


def _normalised(parts: Array, otherwise: Array) -> Array:
    """Rows divided by their sums; rows of zeros are replaced by ``otherwise``."""
    sums = parts.sum(1, keepdims=True)
    return np.where(sums > 0, parts / np.where(sums > 0, sums, 1), otherwise)


def _chains(steps: Array, exits: Array) -> Array:
    """(I - steps)^-1, from the probabilities of going on (N, N) and of ending (N,), which sum to 1 in each row.

    Symbols are eliminated half by half (Grassmann, Taksar & Heyman 1985). Nothing is subtracted: if a symbol hardly
    ever ends, 1 minus its probability of going on has few digits left, but its probability of ending has all.
    """
    num = len(steps)
    if num == 1:
        return 1 / exits[:, None]
    low, high = slice(num // 2), slice(num // 2, num)
    first = _chains(steps[low, low], exits[low] + steps[low, high].sum(1))
    into, back = first @ steps[low, high], steps[high, low] @ first
    second = _chains(steps[high, high] + steps[high, low] @ into, exits[high] + back @ exits[low])
    return np.block([[first + into @ second @ back, into @ second], [second @ back, second]])


class TableRules(ProductRules):
    """A table of all rules (N, S, S): every pair of children is an index r of its own, R = S^2."""

    @classmethod
    def of(cls, root: Array, rules: Array, words: Array) -> Self:
        """Make it from the table p(A -> B C) (N, S, S)."""
        unit = np.eye(len(root))
        return cls(
            root=root,
            words=words,
            of_head=rules.reshape(len(rules), -1),
            of_left=np.repeat(unit, len(root), axis=0),
            of_right=np.tile(unit, (len(root), 1)),
        )

    def left(self, cells: Array) -> Array:
        """The left child of every pair."""
        return np.repeat(cells, self.num_symbols, axis=-1)

    def right(self, cells: Array) -> Array:
        """The right child of every pair."""
        return np.tile(cells, self.num_symbols)

    def left_back(self, of_parts: Array) -> Array:
        """Sum over right children."""
        found: Array = self._square(of_parts).sum(-1)
        return found

    def right_back(self, of_parts: Array) -> Array:
        """Sum over left children."""
        found: Array = self._square(of_parts).sum(-2)
        return found

    def _square(self, of_parts: Array) -> Array:
        return of_parts.reshape(*of_parts.shape[:-1], self.num_symbols, self.num_symbols)

    def conditioned(self, mass: Array) -> Self:
        """Multiply every rule by the mass of its children, and normalise."""
        rules = self.of_head * np.outer(mass, mass).ravel()
        tags, top = self._any_tag(), self.root * mass
        return replace(self, root=top / top.sum(), of_head=_normalised(rules, np.outer(tags, tags).ravel()))


def rules_of(grammar: Grammar) -> ProductRules:
    """The rules of one grammar for reading word by word, in float64."""
    tensors = (grammar.root, grammar.log_words.exp(), *grammar.rules)
    root, words, *rules = (one.detach().cpu().double().numpy() for one in tensors)
    if len(rules) == 1:
        return TableRules.of(root, rules[0], words)
    head = np.eye(len(rules[0])) if len(rules) == 2 else rules[0]
    return ProductRules(root=root, words=words, of_head=head, of_left=rules[-2], of_right=rules[-1])


def grammar_of(rules: ProductRules) -> Grammar:
    """The inverse of ``rules_of``: the grammar for many sentences at once, in float64."""
    head, size = rules.of_head, rules.num_symbols
    if isinstance(rules, TableRules):
        found = [head.reshape(-1, size, size)]
    else:
        factors = [rules.of_left, rules.of_right]
        found = factors if np.array_equal(head, np.eye(*head.shape)) else [head, *factors]
    with np.errstate(divide="ignore"):
        log_words = np.log(rules.words)
    root, words, *tensors = map(torch.from_numpy, (rules.root, log_words, *found))
    return Grammar(root=root, log_words=words, rules=tuple(tensors))


class Grammar(NamedTuple):
    """The probabilities of one grammar or, with a further first dimension B, of one for each sentence of a batch."""

    root: Tensor  # (S,) p(symbol at the top): N nonterminals, then T preterminals
    log_words: Tensor  # (T, V) log p(word | preterminal)
    rules: tuple[Tensor, ...]
    """All rules (N, S, S); or left and right factors, (N, S) each; or heads (N, R), left and right factors (R, S)."""

    @property
    def num_nonterminals(self) -> int:
        """The number of nonterminals N."""
        return self.root.shape[-1] - self.log_words.shape[-2]

    @property
    def is_of_each(self) -> bool:
        """Whether there is one grammar for each sentence."""
        return self.root.dim() == 2

    def of(self, row: int) -> Grammar:
        """The grammar of one sentence."""
        return Grammar(self.root[row], self.log_words[row], tuple(one[row] for one in self.rules))

    def emissions(self, tokens: Tensor) -> Tensor:
        """log p(word | preterminal) of tokens (B, n): (B, n, T)."""
        if not self.is_of_each:
            return self.log_words.T[tokens]
        places = tokens[:, None].expand(-1, self.log_words.shape[1], -1)
        return self.log_words.gather(2, places).transpose(1, 2)


def viterbi(rules: ProductRules, words: Sequence[int]) -> tuple[float, list[tuple[int, int, int]]]:
    """log p(words, best tree), and the spans (start, end, symbol) of that tree, words included.

    A maximum over sums is no matrix product, so this is slow. With low-rank rules it finds the best derivation, which
    includes the index r of every rule.
    """
    n, num, is_table = len(words), rules.num_nonterminals, isinstance(rules, TableRules)
    with np.errstate(divide="ignore"):
        root, head, log_words = np.log(rules.root), np.log(rules.of_head), np.log(rules.words)
        left, right = np.log(rules.of_left), np.log(rules.of_right)
    cells = np.full((n + 1, n + 1, rules.num_symbols), -np.inf)  # of the best tree of every span and symbol
    rank = rules.num_symbols if is_table else head.shape[1]
    lefts, rights = (np.full((n + 1, n + 1, rank), -np.inf) for _ in range(2))  # cells as left and as right parts

    def splits(i: int, j: int) -> Array:
        """Both parts together by split and factor: (splits, R)."""
        first, second = lefts[i, i + 1 : j], rights[i + 1 : j, j]
        if is_table:  # every pair of children is a factor
            first, second = np.repeat(first, rank, -1), np.tile(second, rank)
        found: Array = first + second
        return found

    for width in range(1, n + 1):
        for i in range(n + 1 - width):
            j, cell = i + width, cells[i, i + width]
            if width == 1:
                cell[num:] = log_words[:, words[i]]
            else:
                cell[:num] = (head + splits(i, j).max(0)).max(1)
            lefts[i, j], rights[i, j] = (cell, cell) if is_table else ((left + cell).max(1), (right + cell).max(1))
    top = root + cells[0, n]
    best = int(top.argmax())
    spans, open_spans = list[tuple[int, int, int]](), [(0, n, best)]
    while open_spans:
        i, j, symbol = open_spans.pop()
        spans.append((i, j, symbol))
        if j - i > 1:
            found = splits(i, j) + head[symbol]
            place, factor = divmod(int(found.argmax()), found.shape[1])
            k = i + 1 + place
            open_spans.append((k, j, int((right[factor] + cells[k, j]).argmax())))
            open_spans.append((i, k, int((left[factor] + cells[i, k]).argmax())))
    return float(top[best]), spans
