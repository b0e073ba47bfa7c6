"""The rules of a grammar, as a chart reads them.

A cell is a vector over all S symbols: the probability that each of them yields the words of a span. Every kind of rules
has the form p(A -> B C) = sum over r = 1 .. R of head[A, r] left[r, B] right[r, C], and joins two cells in three steps:
``left`` and ``right`` map the cells of both parts to R numbers each, products of these are summed over the splits of
the span, and ``head`` maps the sum to the cell of the span. ``head`` also follows unary rules, if there are any. A head
is here the left-hand side of a rule, not a lexical head. ::

    cell(i, j) = head(sum over k of left(cell(i, k)) * right(cell(k, j)))

All of these are linear. Methods named ``..._back`` are their transposes, which ``prefixes.py`` needs for derivatives.

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
    """The rules and words of one grammar; ``tags`` are the symbols over single words."""

    root: Array
    """(S,) p(symbol at the top)."""
    words: Array
    """(T, V) p(word | tag)."""
    tags: slice
    """The T symbols that are tags."""

    @property
    def num_symbols(self) -> int:
        """The number of symbols S."""
        return len(self.root)

    @abstractmethod
    def left(self, cells: Array) -> Array:
        """Cells (..., S) -> left parts (..., R)."""

    @abstractmethod
    def right(self, cells: Array) -> Array:
        """Cells (..., S) -> right parts (..., R)."""

    @abstractmethod
    def left_back(self, of_parts: Array) -> Array:
        """The transpose of ``left``: (R,) -> (S,)."""

    @abstractmethod
    def right_back(self, of_parts: Array) -> Array:
        """The transpose of ``right``: (R,) -> (S,)."""

    @abstractmethod
    def head(self, sums: Array) -> Array:
        """Sums over splits (R,) -> the cell of the span (S,)."""

    @abstractmethod
    def head_back(self, of_cell: Array) -> tuple[Array, Array]:
        """The transpose of ``head``, from the derivative of the probability by a cell (S,).

        Returns the derivative by its symbols, with unary chains above them (S,), and by the sums over splits (R,).
        """

    @abstractmethod
    def word_cell(self, of_tags: Array) -> Array:
        """The cell of one word (S,), from p(word | tag) (T,)."""

    @abstractmethod
    def close(self, symbols: Array) -> Array:
        """Left-corner closure (I - P_L)^-1 (Jelinek & Lafferty 1991; Stolcke 1995): (S,) -> (S,).

        It maps the weights of symbols that are predicted at a position to the weights of symbols that start there,
        predicted or as first descendants.
        """

    @abstractmethod
    def close_back(self, symbols: Array) -> Array:
        """The transpose of ``close``."""

    @abstractmethod
    def spread(self, symbols: Array) -> Array:
        """Weights of symbols that start at a position -> weights of the rules r that rewrite them: (S,) -> (R,).

        It is the transpose of ``head`` without unary rules.
        """

    @abstractmethod
    def spread_back(self, of_rules: Array) -> Array:
        """The transpose of ``spread``."""

    @abstractmethod
    def conditioned(self, mass: Array) -> Self:
        """The grammar conditioned on finite trees, from the probability Z of a finite tree below every symbol (S,)."""

    def mass(self) -> Array:
        """The probability Z that the tree below each symbol is finite (S,): the least fixed point, approached from 0.

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
        """The grammar conditioned on finite trees, and the log of the probability that a tree is finite.

        Trees keep their relative probabilities: p(A -> B C) Z_B Z_C / Z_A (Chi 1999), with Z = ``mass``. Without it,
        infinite sentences would have a part of the probability, though next words still sum to 1.

        Raises ``InputError`` for a grammar without finite trees.
        """
        mass = self.mass()
        finite = float(self.root @ mass)
        if finite <= 0:
            raise InputError("no tree of the grammar is finite", remedy="train it again, with a smaller learning_rate")
        return self.conditioned(mass), math.log(finite)


def _inverse(matrix: Array) -> Array:
    """(I - matrix)^-1, the sum over chains of any length, by Kleene's algorithm: through one symbol more at a time.

    It adds only numbers that are not negative, so improbable chains are as exact as others, and impossible ones are 0.
    The inverse of a library may have 1e-16 there, which is large beside a symbol with a probability of 1e-9.
    """
    chains = matrix.copy()
    for through in range(len(chains)):
        back = chains[through] / (1 - chains[through, through])
        chains += np.outer(chains[:, through], back)
    return chains + np.eye(len(chains))


class SparseMatrix:
    """A sparse matrix that can be multiplied with vectors, as it is and transposed."""

    __slots__ = ("_back", "_forward")

    def __init__(self, rows: Ints, columns: Ints, values: Array, shape: tuple[int, int]) -> None:
        """Make it from values and their rows and columns; values of the same row and column are added."""
        self._forward = _compressed(rows, columns, values, shape)
        self._back = _compressed(columns, rows, values, shape[::-1])

    def __matmul__(self, vector: Array) -> Array:
        """The product with a vector."""
        return _times(self._forward, vector)

    def back(self, vector: Array) -> Array:
        """The product of the transpose with a vector."""
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
    """The product of two sparse matrices, (C + N, K) and (K, columns), which is never computed as a whole."""

    __slots__ = ("_entries", "_weights")

    def __init__(self, weights: SparseMatrix, entries: SparseMatrix) -> None:
        """Make it from both factors."""
        self._weights = weights
        self._entries = entries

    def __matmul__(self, vector: Array) -> Array:
        """The product with a vector."""
        return self._weights @ (self._entries @ vector)

    def back(self, vector: Array) -> Array:
        """The product of the transpose with a vector."""
        return self._entries.back(self._weights.back(vector))

    def dense(self, num_rows: int, num_columns: int) -> Array:
        """The first ``num_rows`` rows as an array (num_rows, num_columns)."""
        unit = np.eye(num_columns)
        found = [self @ column for column in unit]
        return np.stack(found, 1)[:num_rows] if found else np.zeros((num_rows, 0))


@dataclass(frozen=True, eq=False)
class MarkovRules(Rules):
    """Rules of any arity as left-to-right Markov chains of their children, without lexical heads (``treebank.py``).

    Symbols are T tags, C constituents and N states. A state is a constituent of which some first children are known; it
    is named by the last of them. A child X that follows a constituent, before its first child, or a state is either
    the last one, an *ending*, or leads to a state n, a *step*. For example, (NP DT JJ NN) has the states NP.DT and
    NP.JJ, the steps NP -> DT NP.DT and NP.DT -> JJ NP.JJ, and the ending NP.JJ -> NN.

    A step to n has the children X and n, but n determines X, its last child. So rules are indexed by their left-hand
    side and by n alone (R = N): the left part of n is the cell of its last child, the right part that of n itself.

    What follows is drawn from one of K contexts, p(step | q) = sum over k of p(k | q) p(step | k): smoothing is such a
    mixture, and contexts are shared.
    """

    root: Array
    words: Array
    last: Ints  # (N,) the last child of every state, a tag or a constituent
    mixture_from: Ints  # (weights,) the constituent or state of each weight p(k | q), from 0
    mixture_to: Ints  # (weights,) its context k
    mixture_weights: Array  # (weights,) the weight
    step_from: Ints  # (steps,) the context of each step
    step_to: Ints  # (steps,) the state to which it leads, from 0
    step_probs: Array  # (steps,) its probability given the context
    ending_from: Ints  # (endings,) the context of each ending
    ending_child: Ints  # (endings,) its child, a tag or a constituent, from 0
    ending_probs: Array  # (endings,) its probability given the context

    @property
    def num_tags(self) -> int:
        """The number of tags T."""
        return len(self.words)

    @property
    def num_states(self) -> int:
        """The number of states N."""
        return len(self.last)

    @property
    def num_constituents(self) -> int:
        """The number of constituents C."""
        return self.num_symbols - self.num_states - self.num_tags

    @property
    def tags(self) -> slice:  # type: ignore[override]
        """Tags are the first symbols."""
        return slice(0, self.num_tags)

    @cached_property
    def _states(self) -> slice:
        return slice(self.num_symbols - self.num_states, self.num_symbols)

    @cached_property
    def num_contexts(self) -> int:
        """The number of contexts K."""
        return len(np.unique(self.mixture_to))

    def _mixed(self, contexts: Ints, columns: Ints, probs: Array, num_columns: int) -> Mixture:
        rows = self.num_constituents + self.num_states
        weights = SparseMatrix(self.mixture_from, self.mixture_to, self.mixture_weights, (rows, self.num_contexts))
        return Mixture(weights, SparseMatrix(contexts, columns, probs, (self.num_contexts, num_columns)))

    @cached_property
    def _steps(self) -> Mixture:
        """p(step to n | q), (C + N, N)."""
        return self._mixed(self.step_from, self.step_to, self.step_probs, self.num_states)

    @cached_property
    def _endings(self) -> Mixture:
        """p(ending with a tag | q), (C + N, T)."""
        own = self.ending_child < self.num_tags
        return self._mixed(self.ending_from[own], self.ending_child[own], self.ending_probs[own], self.num_tags)

    @cached_property
    def _unaries(self) -> tuple[Mixture, Array]:
        """p(ending with a constituent | q) (C + N, C), and the closure (C, C) of chains of unary rules.

        The closure is (I - U)^-1 of the rows U of constituents.
        """
        own = self.ending_child >= self.num_tags
        children, count = self.ending_child[own] - self.num_tags, self.num_constituents
        found = self._mixed(self.ending_from[own], children, self.ending_probs[own], count)
        return found, _inverse(found.dense(count, count))

    @cached_property
    def unary_rules(self) -> Array:
        """p(the only child is this constituent | constituent), (C, C)."""
        return self._unaries[0].dense(self.num_constituents, self.num_constituents)

    @cached_property
    def _corners(self) -> tuple[Mixture, Array]:
        """p(first child | q) (C + N, T + C), and the closure (C, C) of chains of first children among constituents."""
        count, num_tags = self.num_constituents, self.num_tags
        found = self._mixed(
            np.concatenate([self.step_from, self.ending_from]),
            np.concatenate([self.last[self.step_to], self.ending_child]),
            np.concatenate([self.step_probs, self.ending_probs]),
            num_tags + count,
        )
        return found, _inverse(found.dense(count, num_tags + count)[:, num_tags:])

    def left(self, cells: Array) -> Array:
        """The left part of n is the cell of its last child."""
        return np.take(cells, self.last, axis=-1)

    def right(self, cells: Array) -> Array:
        """The right part of n is the cell of n."""
        return cells[..., self._states]

    def left_back(self, of_parts: Array) -> Array:
        """Sum the parts of all states with the same last child."""
        return _sums(self.last, of_parts, self.num_symbols)

    def right_back(self, of_parts: Array) -> Array:
        """Only states have right parts."""
        found = np.zeros(self.num_symbols)
        found[self._states] = of_parts
        return found

    def head(self, sums: Array) -> Array:
        """Apply steps, then unary rules."""
        return self._with_unaries(self._steps @ sums, np.zeros(self.num_tags))

    def _with_unaries(self, found: Array, of_tags: Array) -> Array:
        unaries, chains = self._unaries
        return np.concatenate([of_tags, found + unaries @ (chains @ found[: self.num_constituents])])

    def head_back(self, of_cell: Array) -> tuple[Array, Array]:
        """Pass back through unary rules and endings, then through steps."""
        unaries, chains = self._unaries
        symbols = of_cell.copy()
        own = slice(self.num_tags, self._states.start)
        symbols[own] += chains.T @ unaries.back(of_cell[self.num_tags :])
        symbols[self.tags] += self._endings.back(symbols[self.num_tags :])
        return symbols, self._steps.back(symbols[self.num_tags :])

    def word_cell(self, of_tags: Array) -> Array:
        """Apply endings with a tag, then unary rules."""
        return self._with_unaries(self._endings @ of_tags, of_tags)

    def close(self, symbols: Array) -> Array:
        """From predicted symbols to constituents, then to tags, along first children."""
        corners, chains = self._corners
        own = slice(self.num_tags, self._states.start)
        found = symbols.copy()
        above = symbols[self.num_tags :].copy()
        above[: self.num_constituents] = 0.0
        found[own] = chains.T @ (symbols[own] + corners.back(above)[self.num_tags :])
        found[self.tags] += corners.back(found[self.num_tags :])[: self.num_tags]
        return found

    def close_back(self, symbols: Array) -> Array:
        """From tags to constituents, then to states, along first children."""
        corners, chains = self._corners
        own = slice(self.num_tags, self._states.start)
        found, below = symbols.copy(), np.zeros(self._states.start)
        below[self.tags] = symbols[self.tags]
        found[own] = chains @ (symbols[own] + (corners @ below)[: self.num_constituents])
        below[self.num_tags :] = found[own]
        found[self._states] += (corners @ below)[self.num_constituents :]
        return found

    def spread(self, symbols: Array) -> Array:
        """The steps of constituents and states."""
        return self._steps.back(symbols[self.num_tags :])

    def spread_back(self, of_rules: Array) -> Array:
        """From steps back to constituents and states."""
        return np.concatenate([np.zeros(self.num_tags), self._steps @ of_rules])

    def conditioned(self, mass: Array) -> Self:
        """Multiply steps and endings by the mass of their children, contexts by that of all their steps and endings."""
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
    """Values divided by totals, 0 where the total is 0."""
    return np.divide(values, totals, out=np.zeros_like(values), where=totals != 0)


def _sums(places: Ints, values: Array, size: int) -> Array:
    """The sum of the values of each place: (size,)."""
    return np.bincount(places, values, minlength=size).astype(np.float64)
