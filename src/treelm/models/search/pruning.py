"""What pruning takes from the probability of each sentence: the statistics that a beam search keeps of itself.

All are shares of the probability that the search for one token began with, and are summed sentence by sentence over a
sentence's own analyses, so that they do not depend on what else is in the batch. Scores of analyses are log
probabilities in nats. A "narrower search" is the same search with a smaller threshold, contained in that of an adaptive
beam: what it would have found says whether the wider one has converged. A fixed beam contains none that is narrower.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from treelm.models.search.analyses import Arrivals, log_sums
from treelm.models.search.config import SearchConfig
from treelm.models.search.rows import Floats, Ints

NARROWER = 2.0
"""Nats by which the threshold of the narrower search is smaller."""
MOST_OVERFLOW = 0.02
"""The share of a token's mass that a full beam may lose before it no longer contains the narrower search."""
LEAST = -700.0
"""A log share that counts for nothing, and whose exponential is still computed fast."""


class PruningStatistics:
    """The probability that was pruned: in the search for the present token, and since the sentence began."""

    def __init__(self, config: SearchConfig, num_sentences: int) -> None:
        """Nothing has been pruned."""
        self.narrow, self._num_sentences = config.beam.threshold - NARROWER, num_sentences
        self._lost_log_mass: Floats = np.full(num_sentences, -np.inf)  # of all that was ever pruned
        self._overflow: Floats = np.zeros(num_sentences)  # the largest share that a token lost for want of room

    def fork(self, sources: Ints) -> None:
        """Go on with sentence ``sources[i]`` as sentence i."""
        self._num_sentences = len(sources)
        self._lost_log_mass, self._overflow = self._lost_log_mass[sources], self._overflow[sources]

    # The search for one token.

    def begin(self, sentence: Ints, score: Floats) -> None:
        """Begin a search with these analyses."""
        total = log_sums(sentence, score, self._num_sentences)
        self._before, self._all = total, np.where(np.isfinite(total), total, 0.0)
        nothing: Floats = np.zeros(self._num_sentences)
        self._at_goal = self._arrived = self._dropped = self._overflowed = self._num_actions = nothing

    def expand(self, sentence: Ints, others: Floats, at_goal: Floats) -> Floats:
        """Count successors that stay in search (n, m) and those at the goal (n,), before any is pruned.

        Returns log of the probability in play, by sentence: what is in search, and what has ever been at the goal.
        """
        self._sentence, self._others = sentence, others
        self._shares = others - self._all[sentence, None]
        np.exp(np.maximum(self._shares, LEAST, out=self._shares), out=self._shares)
        in_search = np.bincount(sentence, self._shares.sum(1), self._num_sentences)
        self._dropped = self._dropped + in_search
        self._at_goal = self._at_goal + self._sums(sentence, at_goal)
        self._share_in_play = np.maximum(in_search + self._at_goal, np.exp(LEAST))
        self._in_play: Floats = self._all + np.log(self._share_in_play)
        return self._in_play

    def choose(self, sentence: Ints, scores: Floats, floor: Floats) -> None:
        """Count which of these successors the action beam has room for; none at or below ``floor`` needs any."""
        if not np.isfinite(self.narrow):
            return
        least = np.maximum(floor, self._in_play - self.narrow)
        self._shares *= self._others > least[self._sentence, None]
        wanted = np.bincount(self._sentence, self._shares.sum(1), self._num_sentences)
        is_near = scores > least[sentence]
        missing = wanted - self._sums(sentence[is_near], scores[is_near])
        self._overflowed = self._overflowed + missing.clip(0) / self._share_in_play

    def arrive(self, sentence: Ints, at_goal: Floats) -> None:
        """Count the analyses that reach the goal, by their scores without the token's probability."""
        self._arrived = self._arrived + self._sums(sentence, at_goal)
        self._num_actions = self._num_actions + np.bincount(sentence, minlength=self._num_sentences)

    def go_on(self, sentence: Ints, scores: Floats) -> None:
        """Count the analyses that stay in search."""
        self._dropped = self._dropped - self._sums(sentence, scores)
        self._num_actions = self._num_actions + np.bincount(sentence, minlength=self._num_sentences)

    def _sums(self, sentence: Ints, scores: Floats) -> Floats:
        shares = np.exp(np.maximum(scores - self._all[sentence], LEAST))
        return np.bincount(sentence, shares, self._num_sentences).astype(np.float64)

    # The token.

    def take_over(
        self, before: Floats, at_goal: Floats, arrived: Floats, dropped: Floats, overflowed: Floats, num_actions: Floats
    ) -> None:
        """Take what was counted elsewhere in the search for one token, by sentence: log mass, shares and actions."""
        self._before, self._at_goal, self._arrived, self._dropped = before, at_goal, arrived, dropped
        self._overflowed, self._num_actions = overflowed, num_actions

    def finish(self, near: Floats, kept: Arrivals, found: Floats, log_mass: Floats) -> Mapping[str, Floats]:
        """End the token: metrics by the names of ``TokenMetrics``, from what the word beam keeps of its candidates.

        ``near`` is the share of these that a narrower search would have kept, ``found`` and ``log_mass`` are the logs
        of what candidates and kept ones sum to, by sentence.
        """
        narrow_log_mass = self._narrow_log_mass(near, kept, found)
        alive = np.isfinite(log_mass)
        log_mass, found = (np.where(alive, values, 0.0) for values in (log_mass, found))
        by_words = np.maximum(found - log_mass, 0.0)  # pruned by the word beam, in nats
        dropped = self._dropped.clip(0, 1)  # by the action beam, how probable the token was there is not known
        not_shifted = (self._at_goal - self._arrived).clip(0, 1)  # SHIFTs, most of them of an improbable token
        with np.errstate(divide="ignore"):
            in_search = self._before + np.log(dropped + not_shifted)
            of_found = np.where(alive, found + np.log(-np.expm1(-by_words)), -np.inf)
            self._lost_log_mass = np.logaddexp(self._lost_log_mass, np.logaddexp(in_search, of_found))
            loss = by_words - np.log1p(-dropped)
        bound = np.logaddexp(0.0, self._lost_log_mass - log_mass)
        reached = log_sums(kept.sentence, kept.before, self._num_sentences)  # before the token's own probability
        syntactic = np.where(alive, self._before, 0.0) - np.where(alive, reached, 0.0)
        bits = {"beam_loss_bits": loss, "beam_bound_bits": bound, "syntactic_bits": syntactic}
        return {
            "narrow_log_mass": narrow_log_mass,
            "search_actions": self._num_actions,
            **{name: np.where(alive, nats / np.log(2), np.inf) for name, nats in bits.items()},
        }

    def _narrow_log_mass(self, near: Floats, kept: Arrivals, found: Floats) -> Floats:
        """The log of what a narrower search would have found, by sentence: -inf where the beam has had no room for it,
        nan for a fixed beam.
        """
        if not np.isfinite(self.narrow):
            return np.full(self._num_sentences, np.nan)
        self._overflow = np.maximum(self._overflow, self._overflowed + (near - self.near(kept, found)).clip(0))
        inside = self._overflow[kept.sentence] <= MOST_OVERFLOW
        narrow = kept.take((kept.deficit < self.narrow) & inside)
        return log_sums(narrow.sentence, narrow.score, self._num_sentences)

    def near(self, some: Arrivals, found: Floats) -> Floats:
        """The share of what was found that a narrower search would have kept of these."""
        deficit = found[some.sentence] - some.score
        near = np.where(deficit < self.narrow, np.exp(-deficit), 0.0)
        return np.bincount(some.sentence, near, self._num_sentences).astype(np.float64)
