"""Goals of a search within a token: SHIFT of a known token, SHIFT of whatever comes, or the end.

A goal gives the scores of the actions that reach it; all other actions that are allowed keep an analysis in search.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np

from treelm.models.search.analyses import Analyses, Layout, nth_best
from treelm.models.search.machine import Machine, WordHead
from treelm.models.search.rows import Floats, Ints, as_index
from treelm.trees.transitions import REDUCE, SHIFT

WAITS = -1  # in place of a token: this sentence stays where it is

_FEW = 6  # below so many candidates a bound does not pay
_SLACK = 1e-4  # nats that rounding may take from a bound


class Goal(ABC):
    """A goal of a search: the action by which analyses reach the next token, or the end."""

    action: ClassVar[int] = SHIFT  # the one that reaches it

    def __init__(self, machine: Machine) -> None:
        """Take the machine whose analyses shall reach the goal."""
        self._others = slice(REDUCE, machine.num_actions - (not machine.ends_by_closing))
        self._machine = machine

    def others(self, analyses: Analyses) -> Floats:
        """Scores of the successors that stay in search, by all actions but SHIFT and FINISH, in their order."""
        log_probs = analyses.log_probs[:, self._others]
        scores = analyses.score[:, None] + log_probs
        if self._machine.ends_by_closing:
            scores[self._machine.num_open(analyses.top) == 1, 0] = -np.inf
        return scores

    @abstractmethod
    def reaching(self, analyses: Analyses, layout: Layout, floor: Floats, least_other: Floats) -> Floats:
        """Scores of the actions that reach the goal: (groups, width); -inf for some that are not worth computing.

        Those are, by group (all analyses of a sentence, unless the machine has several), at or below ``floor`` (they
        would be dropped), or below ``least_other`` (the k-th best other successor) without being among the best
        ``fast_track``.
        """


class AnyToken(Goal):
    """SHIFT before the next token is known: p(token) is left out."""

    def reaching(self, analyses: Analyses, layout: Layout, floor: Floats, least_other: Floats) -> Floats:
        """All of them."""
        return layout.pad(analyses.score + analyses.log_probs[:, SHIFT])


class End(Goal):
    """FINISH, of a machine that does not end by closing."""

    action: ClassVar[int] = -1

    def others(self, analyses: Analyses) -> Floats:
        """Those that may lead to the end."""
        leads = self._machine.towards_end(analyses)[:, self._others]
        return np.where(leads, super().others(analyses), -np.inf)

    def reaching(self, analyses: Analyses, layout: Layout, floor: Floats, least_other: Floats) -> Floats:
        """All of them."""
        return layout.pad(analyses.score + analyses.log_probs[:, -1])


class Token(Goal):
    """SHIFT of a known token in each sentence, with its probability."""

    def __init__(self, machine: Machine, tokens: Ints, head: WordHead, fast_track: int) -> None:
        """``tokens`` (sentences,)."""
        super().__init__(machine)
        self._tokens, self._head, self._fast_track = tokens, head, fast_track

    def reaching(self, analyses: Analyses, layout: Layout, floor: Floats, least_other: Floats) -> Floats:
        """Scores as of every goal, computed only where an upper bound says that they matter."""
        shifted = analyses.score + analyses.log_probs[:, SHIFT]
        scores = np.full(len(shifted), -np.inf)
        candidates = np.flatnonzero(shifted > floor[layout.row])
        if len(candidates) == 0:
            return layout.pad(scores)
        _BoundedScores(self, analyses, layout, shifted, scores, candidates).fill(layout, floor, least_other)
        return layout.pad(scores)


class _BoundedScores:
    """Scores of SHIFT that matter, found by an upper bound on each."""

    def __init__(
        self, goal: Token, analyses: Analyses, layout: Layout, shifted: Floats, scores: Floats, candidates: Ints
    ) -> None:
        """Compute the candidates' logits; ``fill`` writes into ``scores``."""
        self._head, self._fast_track = goal._head, goal._fast_track
        self._row = layout.row[candidates]
        self._tokens = goal._tokens[analyses.sentence[candidates]]
        taken = analyses.outputs if len(candidates) == len(scores) else analyses.take(candidates).outputs
        self._outputs, self._candidates, self._scores = taken, candidates, scores
        self._logits = self._head.logits(taken, self._tokens)
        self._with_logit = shifted[candidates] + self._logits

    def fill(self, layout: Layout, floor: Floats, least_other: Floats) -> None:
        everything = np.arange(len(self._candidates))
        if len(everything) <= _FEW:
            return self._compute(everything)
        upper, floor = np.full(len(everything), np.inf), floor[self._row]
        likely = upper > floor
        for rough in (True, False):
            self._lower(upper, np.flatnonzero(likely), rough=rough)
            of_all = np.full(len(self._scores), -np.inf)
            of_all[self._candidates] = upper
            few = nth_best(layout.pad(of_all), self._fast_track + 2)[self._row]
            likely = (upper > floor) & ((upper >= few) | (upper > least_other[self._row]))
        self._compute(np.flatnonzero(likely))
        if self._fast_track:
            found = nth_best(layout.pad(self._scores), self._fast_track)[self._row]
            self._compute(np.flatnonzero((upper > np.maximum(floor, found)) & ~likely))
        return None

    def _lower(self, upper: Floats, places: Ints, *, rough: bool) -> None:
        """Tighten the bounds of some scores."""
        outputs = (
            self._outputs
            if len(places) == len(upper)
            else self._outputs.index_select(0, as_index(places, self._outputs))
        )
        bounds = self._head.log_normaliser_bounds(outputs, self._tokens[places], self._logits[places], rough=rough)
        upper[places] = self._with_logit[places] - bounds + _SLACK

    def _compute(self, places: Ints) -> None:
        if len(places) == 0:
            return
        outputs = self._outputs
        if len(places) < outputs.shape[0]:
            outputs = outputs.index_select(0, as_index(places, outputs))
        self._scores[self._candidates[places]] = self._with_logit[places] - self._head.log_normalisers(outputs)
