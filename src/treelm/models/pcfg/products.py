"""Rules of induced grammars, as tables of all of them or as products of few numbers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np
import torch

from treelm.models.pcfg.grammar import Grammar
from treelm.models.pcfg.rules import Array, Outside, Rules

_TOLERANCE, _MOST_STEPS = 1e-14, 100  # of Newton's method: some five steps, more where almost no tree ends


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
        """N."""
        return len(self.of_head)

    @property
    def tags(self) -> slice:  # type: ignore[override]
        """The last symbols."""
        return slice(self.num_nonterminals, self.num_symbols)

    @cached_property
    def corners(self) -> Array:
        """p(first child), (N, S)."""
        found: Array = self.of_head @ (self.of_left * self.of_right.sum(1, keepdims=True))
        return found

    @cached_property
    def chains(self) -> Array:
        """(I - first children that are nonterminals)^-1, (N, N)."""
        num = self.num_nonterminals
        return _chains(self.corners[:, :num], self.corners[:, num:].sum(1))

    def left(self, cells: Array) -> Array:
        """Left factors."""
        return cells @ self.of_left.T

    def right(self, cells: Array) -> Array:
        """Right factors."""
        return cells @ self.of_right.T

    def left_back(self, of_parts: Array) -> Array:
        """Left factors back."""
        return of_parts @ self.of_left

    def right_back(self, of_parts: Array) -> Array:
        """Right factors back."""
        return of_parts @ self.of_right

    def head(self, sums: Array) -> Array:
        """Nonterminals alone are above two words or more."""
        return np.concatenate([self.of_head @ sums, np.zeros(self.words.shape[0])])

    def head_back(self, of_cell: Array) -> Outside:
        """Heads back."""
        return Outside(symbols=of_cell, sums=self.spread(of_cell))

    def word_cell(self, of_tags: Array) -> Array:
        """Tags alone are above one word."""
        return np.concatenate([np.zeros(self.num_nonterminals), of_tags])

    def close(self, symbols: Array) -> Array:
        """Follow first children down."""
        num = self.num_nonterminals
        above = symbols[:num] @ self.chains
        return np.concatenate([above, symbols[num:] + above @ self.corners[:, num:]])

    def close_back(self, symbols: Array) -> Array:
        """Follow first children up."""
        num = self.num_nonterminals
        below = self.chains @ (symbols[:num] + self.corners[:, num:] @ symbols[num:])
        return np.concatenate([below, symbols[num:]])

    def spread(self, symbols: Array) -> Array:
        """Heads of what starts at a place."""
        return symbols[: self.num_nonterminals] @ self.of_head

    def spread_back(self, of_rules: Array) -> Array:
        """Put back."""
        return self.head(of_rules)

    def mass(self) -> Array:
        """The probability that the tree below each symbol is finite: Newton's method from 0, which only rises."""
        num = self.num_nonterminals
        mass = self.word_cell(np.ones(len(self.words)))
        for _ in range(_MOST_STEPS):
            left, right = self.left(mass), self.right(mass)
            slope = (self.of_head * right) @ self.of_left[:, :num] + (self.of_head * left) @ self.of_right[:, :num]
            step = np.linalg.solve(np.eye(num) - slope, self.of_head @ (left * right) - mass[:num])
            mass[:num] += step
            if not (np.abs(step) > _TOLERANCE).any():
                break
        return mass

    def mended(self, mass: Array) -> Self:
        """Every factor by the mass of what it makes, over that of what it is made of: the rules keep their form."""
        left, right = self.of_left * mass, self.of_right * mass
        of_left, of_right = left.sum(1, keepdims=True), right.sum(1, keepdims=True)
        head = self.of_head * (of_left * of_right)[:, 0]
        top = self.root * mass
        return replace(
            self,
            root=top / top.sum(),
            of_head=head / head.sum(1, keepdims=True),
            of_left=left / of_left,
            of_right=right / of_right,
        )


def _chains(steps: Array, exits: Array) -> Array:
    """(I - steps)^-1 of probabilities of going on (N, N) and of ending (N), which sum to 1.

    Halves are eliminated one after the other (Grassmann, Taksar & Heyman 1985). Nothing is subtracted: 1 less the
    probability of going on has no digits left where a symbol hardly ends, and its sum of endings has all of them.
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
    """A table of all rules (N, S, S): every pair of children is a factor of its own, R = S^2."""

    @classmethod
    def of(cls, root: Array, rules: Array, words: Array) -> Self:
        """Take the table p(A -> B C)."""
        unit = np.eye(len(root))
        return cls(
            root=root,
            words=words,
            of_head=rules.reshape(len(rules), -1),
            of_left=np.repeat(unit, len(root), axis=0),
            of_right=np.tile(unit, (len(root), 1)),
        )

    def left(self, cells: Array) -> Array:
        """Every left child beside all right ones."""
        return np.repeat(cells, self.num_symbols, axis=-1)

    def right(self, cells: Array) -> Array:
        """All right children beside every left one."""
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

    def mended(self, mass: Array) -> Self:
        """Every rule by the mass of its children, over that of its parent."""
        rules = self.of_head * np.outer(mass, mass).ravel()
        top = self.root * mass
        return replace(self, root=top / top.sum(), of_head=rules / rules.sum(1, keepdims=True))


def rules_of(grammar: Grammar) -> ProductRules:
    """The rules of one grammar, as they are read word by word, in float64."""
    tensors = (grammar.root, grammar.log_words.exp(), *grammar.rules)
    root, words, *rules = (one.detach().cpu().double().numpy() for one in tensors)
    if len(rules) == 1:
        return TableRules.of(root, rules[0], words)
    head = np.eye(len(rules[0])) if len(rules) == 2 else rules[0]
    return ProductRules(root=root, words=words, of_head=head, of_left=rules[-2], of_right=rules[-1])


def grammar_of(rules: ProductRules) -> Grammar:
    """The grammar of rules, as sentences are read side by side, in float64."""
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
