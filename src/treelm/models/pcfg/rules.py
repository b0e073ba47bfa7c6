"""The rules of a grammar, as a chart reads them.

A cell is a vector over all S symbols: how probable it is that each of them yields the words of a span. Every kind of
rules joins two cells in three steps, p(A -> B C) = sum over r of H[A, r] l[r, B] r[r, C]: ``left`` and ``right`` take
both cells to R numbers, products of these are summed over the splits of the span, and ``head`` takes the sum to the
cell of the span. ``head`` also follows unary rules, where there are any. A head is here the left-hand side of a rule,
not a lexical head.

Everything is float64 on the CPU, sparse products by torch; the sums of one sentence do not depend on other sentences.
"""

from __future__ import annotations

import math
import warnings
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray

from treelm.errors import InputError

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

_TOLERANCE = 1e-14  # of the fixed point of masses
_MOST_STEPS = 100_000


class Rules(ABC):
    """The rules and words of one grammar; ``tags`` are the symbols that are words."""

    root: Array
    """(S,) p(symbol at the top)."""
    words: Array
    """(T, V) p(word | tag)."""
    tags: slice
    """The symbols that are tags, T of them."""

    @property
    def num_symbols(self) -> int:
        """S."""
        return len(self.root)

    @abstractmethod
    def left(self, cells: Array) -> Array:
        """Cells (..., S) as left parts: (..., R)."""

    @abstractmethod
    def right(self, cells: Array) -> Array:
        """Cells (..., S) as right parts: (..., R)."""

    @abstractmethod
    def left_back(self, of_parts: Array) -> Array:
        """The transpose of ``left``: (R,) -> (S,)."""

    @abstractmethod
    def right_back(self, of_parts: Array) -> Array:
        """The transpose of ``right``: (R,) -> (S,)."""

    @abstractmethod
    def head(self, sums: Array) -> Array:
        """Sums over splits (R,) -> the cell (S,)."""

    @abstractmethod
    def head_back(self, of_cell: Array) -> tuple[Array, Array]:
        """The outside values of a cell, gradients of the probability, from its gradient without unary rules (S,).

        Those with respect to its symbols, unary chains above them included (S,), and to the sums over splits (R,).
        """

    @abstractmethod
    def word_cell(self, of_tags: Array) -> Array:
        """The cell of one word (S,), from p(word | tag) (T,)."""

    @abstractmethod
    def close(self, symbols: Array) -> Array:
        """Left-corner closure (I - P_L)^-1 (Jelinek & Lafferty 1991; Stolcke 1995).

        From the weight of each symbol predicted at a position to that of each symbol that starts there, predicted or as
        first descendant: (S,) -> (S,).
        """

    @abstractmethod
    def close_back(self, symbols: Array) -> Array:
        """The transpose of ``close``."""

    @abstractmethod
    def spread(self, symbols: Array) -> Array:
        """From the weight of symbols that start at a position to that of the rules r that rewrite them: (S,) -> (R,).

        The transpose of ``head`` without unary rules.
        """

    @abstractmethod
    def spread_back(self, of_rules: Array) -> Array:
        """The transpose of ``spread``."""

    @abstractmethod
    def mended(self, mass: Array) -> Self:
        """The grammar conditioned on finite trees, given Z (S,), the mass of finite trees of every symbol."""

    def mass(self) -> Array:
        """The probability that the tree below each symbol is finite, (S,): the least fixed point, from 0 upwards.

        It is below 1 for grammars that may branch for ever.
        """
        words = self.word_cell(np.ones(self.words.shape[0]))
        mass = words
        for _ in range(_MOST_STEPS):
            following = words + self.head(self.left(mass) * self.right(mass))
            if not (np.abs(following - mass) > _TOLERANCE).any():
                return following
            mass = following
        return mass

    def consistent(self) -> tuple[Self, float]:
        """The grammar of finite trees alone, and the log of the mass that they had.

        Trees keep their relative probabilities: p(A -> B C) Z_B Z_C / Z_A (Chi 1999), with Z = ``mass``. Otherwise
        next-word probabilities would still sum to 1 while infinite sentences kept part of the mass.

        Raises ``InputError`` for a grammar without finite trees.
        """
        mass = self.mass()
        finite = float(self.root @ mass)
        if finite <= 0:
            raise InputError("no tree of the grammar is finite", remedy="train it again, with a smaller learning_rate")
        return self.mended(mass), math.log(finite)


def _inverse(matrix: Array) -> Array:
    """(I - matrix)^-1, the sum over chains of any length, by Kleene's algorithm: those through more and more symbols.

    It only adds what is not negative, so that improbable chains are as exact as others, and those that do not exist are
    0. A library's inverse leaves 1e-16 at such places, which is much beside a symbol with a probability of 1e-9.
    """
    chains = matrix.copy()
    for through in range(len(chains)):
        back = chains[through] / (1 - chains[through, through])
        chains += np.outer(chains[:, through], back)
    return chains + np.eye(len(chains))


class SparseMatrix:
    """A matrix of few numbers, times a vector."""

    __slots__ = ("_back", "_forward")

    def __init__(self, rows: Ints, columns: Ints, values: Array, shape: tuple[int, int]) -> None:
        """Sort the numbers by rows, and by columns for the transpose; those at one place are added."""
        self._forward = _compressed(rows, columns, values, shape)
        self._back = _compressed(columns, rows, values, shape[::-1])

    def __matmul__(self, vector: Array) -> Array:
        """Multiply by a vector."""
        return _times(self._forward, vector)

    def back(self, vector: Array) -> Array:
        """Multiply the transpose by a vector."""
        return _times(self._back, vector)


def _compressed(rows: Ints, columns: Ints, values: Array, shape: tuple[int, int]) -> torch.Tensor:
    places, inverse = np.unique(rows * shape[1] + columns, return_inverse=True)
    starts = np.searchsorted(places, np.arange(shape[0] + 1) * shape[1]).astype(np.int32)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # that this part of torch may still change
        return torch.sparse_csr_tensor(
            torch.from_numpy(starts),
            torch.from_numpy((places % shape[1]).astype(np.int32)),
            torch.from_numpy(_sums(inverse, values, len(places))),
            size=shape,
            check_invariants=True,
        )


def _times(matrix: torch.Tensor, vector: Array) -> Array:
    found: Array = (matrix @ torch.from_numpy(vector)[:, None])[:, 0].numpy()
    return found


class Mixture:
    """A matrix in two sparse factors, (C + N, K) and (K, columns); the product is never formed."""

    __slots__ = ("_entries", "_weights")

    def __init__(self, weights: SparseMatrix, entries: SparseMatrix) -> None:
        """Keep both factors."""
        self._weights = weights
        self._entries = entries

    def __matmul__(self, vector: Array) -> Array:
        """Multiply by a vector."""
        return self._weights @ (self._entries @ vector)

    def back(self, vector: Array) -> Array:
        """Multiply the transpose by a vector."""
        return self._entries.back(self._weights.back(vector))

    def dense(self, num_rows: int, num_columns: int) -> Array:
        """The first rows in full."""
        unit = np.eye(num_columns)
        found = [self @ column for column in unit]
        return np.stack(found, 1)[:num_rows] if found else np.zeros((num_rows, 0))


@dataclass(frozen=True, eq=False)
class MarkovRules(Rules):
    """Rules of any arity as left-to-right Markov chains of their children, without lexical heads (``treebank.py``).

    Symbols are T tags, C constituents and N states. A state is a constituent whose first children are there, known by
    the last of them. From a constituent, where none is there, and from a state, a child X may follow and be the last
    one, an ending, or lead to a state n, a step. X is known by n. So p(q -> X n) needs no three indices, and R = N: the
    left part of n is its last child, the right part is n itself.

    For example, (NP DT JJ NN) has the states NP.DT and NP.JJ: an NP whose last child so far is DT, JJ. Steps:
    NP -> DT NP.DT, then NP.DT -> JJ NP.JJ. Ending: NP.JJ -> NN.

    What follows is drawn from one of K contexts, p(step | q) = sum over k of p(k | q) p(step | k): smoothing is such a
    mixture, and contexts are shared.
    """

    root: Array
    words: Array
    last: Ints  # (N,) the last child of every state: a tag or a constituent
    mixture_from: Ints  # (weights,) constituents and states, from 0
    mixture_to: Ints  # (weights,) contexts
    mixture_weights: Array  # (weights,)
    step_from: Ints  # (steps,) contexts
    step_to: Ints  # (steps,) states, from 0
    step_probs: Array  # (steps,)
    ending_from: Ints  # (endings,) contexts
    ending_child: Ints  # (endings,) tags and constituents, from 0
    ending_probs: Array  # (endings,)

    @property
    def num_tags(self) -> int:
        """T."""
        return len(self.words)

    @property
    def num_states(self) -> int:
        """N."""
        return len(self.last)

    @property
    def num_constituents(self) -> int:
        """C."""
        return self.num_symbols - self.num_states - self.num_tags

    @property
    def tags(self) -> slice:  # type: ignore[override]
        """The first symbols."""
        return slice(0, self.num_tags)

    @cached_property
    def _states(self) -> slice:
        return slice(self.num_symbols - self.num_states, self.num_symbols)

    @cached_property
    def num_contexts(self) -> int:
        """K."""
        return len(np.unique(self.mixture_to))

    def _mixed(self, contexts: Ints, columns: Ints, probs: Array, num_columns: int) -> Mixture:
        rows = self.num_constituents + self.num_states
        weights = SparseMatrix(self.mixture_from, self.mixture_to, self.mixture_weights, (rows, self.num_contexts))
        return Mixture(weights, SparseMatrix(contexts, columns, probs, (self.num_contexts, num_columns)))

    @cached_property
    def _steps(self) -> Mixture:
        """(C + N, N)."""
        return self._mixed(self.step_from, self.step_to, self.step_probs, self.num_states)

    @cached_property
    def _endings(self) -> Mixture:
        """By children that are tags: (C + N, T)."""
        own = self.ending_child < self.num_tags
        return self._mixed(self.ending_from[own], self.ending_child[own], self.ending_probs[own], self.num_tags)

    @cached_property
    def _unaries(self) -> tuple[Mixture, Array]:
        """By children that are constituents, (C + N, C), and (I - what constituents have of it)^-1."""
        own = self.ending_child >= self.num_tags
        children, count = self.ending_child[own] - self.num_tags, self.num_constituents
        found = self._mixed(self.ending_from[own], children, self.ending_probs[own], count)
        return found, _inverse(found.dense(count, count))

    @cached_property
    def unary_rules(self) -> Array:
        """p(constituent has this one as its only child), (C, C)."""
        return self._unaries[0].dense(self.num_constituents, self.num_constituents)

    @cached_property
    def _corners(self) -> tuple[Mixture, Array]:
        """By first children, (C + N, T + C), and (I - what constituents have of each other)^-1."""
        count, num_tags = self.num_constituents, self.num_tags
        found = self._mixed(
            np.concatenate([self.step_from, self.ending_from]),
            np.concatenate([self.last[self.step_to], self.ending_child]),
            np.concatenate([self.step_probs, self.ending_probs]),
            num_tags + count,
        )
        return found, _inverse(found.dense(count, num_tags + count)[:, num_tags:])

    def left(self, cells: Array) -> Array:
        """The last child of every state."""
        return np.take(cells, self.last, axis=-1)

    def right(self, cells: Array) -> Array:
        """The state itself."""
        return cells[..., self._states]

    def left_back(self, of_parts: Array) -> Array:
        """Sum over the states that have a child."""
        return _sums(self.last, of_parts, self.num_symbols)

    def right_back(self, of_parts: Array) -> Array:
        """Put states where they belong."""
        found = np.zeros(self.num_symbols)
        found[self._states] = of_parts
        return found

    def head(self, sums: Array) -> Array:
        """Steps, then unary rules."""
        return self._with_unaries(self._steps @ sums, np.zeros(self.num_tags))

    def _with_unaries(self, found: Array, of_tags: Array) -> Array:
        unaries, chains = self._unaries
        return np.concatenate([of_tags, found + unaries @ (chains @ found[: self.num_constituents])])

    def head_back(self, of_cell: Array) -> tuple[Array, Array]:
        """Unary rules and endings above, then steps."""
        unaries, chains = self._unaries
        symbols = of_cell.copy()
        own = slice(self.num_tags, self._states.start)
        symbols[own] += chains.T @ unaries.back(of_cell[self.num_tags :])
        symbols[self.tags] += self._endings.back(symbols[self.num_tags :])
        return symbols, self._steps.back(symbols[self.num_tags :])

    def word_cell(self, of_tags: Array) -> Array:
        """Tags, what ends with one of them, and unary rules."""
        return self._with_unaries(self._endings @ of_tags, of_tags)

    def close(self, symbols: Array) -> Array:
        """Follow first children down."""
        corners, chains = self._corners
        own = slice(self.num_tags, self._states.start)
        found = symbols.copy()
        above = symbols[self.num_tags :].copy()
        above[: self.num_constituents] = 0.0
        found[own] = chains.T @ (symbols[own] + corners.back(above)[self.num_tags :])
        found[self.tags] += corners.back(found[self.num_tags :])[: self.num_tags]
        return found

    def close_back(self, symbols: Array) -> Array:
        """Follow first children up."""
        corners, chains = self._corners
        own = slice(self.num_tags, self._states.start)
        found, below = symbols.copy(), np.zeros(self._states.start)
        below[self.tags] = symbols[self.tags]
        found[own] = chains @ (symbols[own] + (corners @ below)[: self.num_constituents])
        below[self.num_tags :] = found[own]
        found[self._states] += (corners @ below)[self.num_constituents :]
        return found

    def spread(self, symbols: Array) -> Array:
        """Steps of what starts at a place."""
        return self._steps.back(symbols[self.num_tags :])

    def spread_back(self, of_rules: Array) -> Array:
        """Put back."""
        return np.concatenate([np.zeros(self.num_tags), self._steps @ of_rules])

    def mended(self, mass: Array) -> Self:
        """Steps and endings by the mass of what they make, over that of what they are made of."""
        steps = self.step_probs * mass[self.last[self.step_to]] * mass[self._states][self.step_to]
        endings = self.ending_probs * mass[self.ending_child]
        count = self.num_contexts
        contexts = _sums(self.step_from, steps, count) + _sums(self.ending_from, endings, count)
        weights = self.mixture_weights * contexts[self.mixture_to]
        top = self.root * mass
        return replace(
            self,
            root=top / top.sum(),
            mixture_weights=_shares(weights, mass[self.num_tags :][self.mixture_from]),
            step_probs=_shares(steps, contexts[self.step_from]),
            ending_probs=_shares(endings, contexts[self.ending_from]),
        )


def _shares(values: Array, totals: Array) -> Array:
    """Values over totals, 0 where there is nothing."""
    return np.divide(values, totals, out=np.zeros_like(values), where=totals != 0)


def _sums(places: Ints, values: Array, size: int) -> Array:
    """The sum of the values of each place, (size,)."""
    return np.bincount(places, values, minlength=size).astype(np.float64)
