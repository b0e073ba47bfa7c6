"""How much probability pruning removes from each sentence: the statistics that a beam search keeps of itself.

All are shares of the probability with which the search for one token begins, summed over a sentence's own analyses, so
that they do not depend on the rest of the batch. Scores of analyses are log probabilities in nats.

For example, a search begins with analyses of probability 0.06 and 0.04, so a share of 1 is 0.1. Before the probability
of the token is counted, their successors at the goal have 0.04 and 0.03, all others 0.02 and 0.01. If the first one at
the goal arrives, the second one is pruned (``not_arrived`` is 0.3); if of the others the first one stays in search, the
second one is pruned (``dropped`` is 0.1). The next step counts the successors of the one that stays, and so on.

>>> statistics, both, first = PruningStatistics(SearchConfig(), 1), np.array([0, 0]), np.array([0])
>>> statistics.begin(both, np.log([0.06, 0.04]))
>>> in_play = statistics.expand(both, np.log([[0.02], [0.01]]), np.log([0.04, 0.03]))
>>> statistics.prune(arrived=first, going=first, chosen=first, floor=np.array([-np.inf]))
>>> [float(share.round(3)[0]) for share in (statistics._not_arrived, statistics._dropped)]
[0.3, 0.1]

What is pruned is summed directly. As the difference of all successors and those that are kept, it would have a rounding
error of 1e-16, which is much of the probability of a sentence after a few improbable words.

A "narrower search" is the same search with a threshold that is smaller by ``NARROWER``. An adaptive beam contains it:
its analyses are those whose deficits stay below the smaller threshold. If both find nearly the same probability, the
search has converged. A fixed beam contains no narrower search.
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
"""The share of a token's mass that may be lost because the beam is full; with more lost, the beam does not contain the
narrower search."""
LEAST = -700.0
"""The log of the least share that can be in play."""


class PruningStatistics:
    """The probability that was pruned: in the search for the present token, and since the sentence began."""

    def __init__(self, config: SearchConfig, num_sentences: int) -> None:
        """Start a sentence: nothing has been pruned."""
        self.narrow, self._num_sentences = config.beam.threshold - NARROWER, num_sentences
        self._lost_log_mass: Floats = np.full(num_sentences, -np.inf)  # log of all probability that was pruned so far
        self._overflow: Floats = np.zeros(num_sentences)  # the largest share lost in a full beam

    def fork(self, sources: Ints) -> None:
        """Continue with the old sentence ``sources[i]`` as sentence i."""
        self._num_sentences = len(sources)
        self._lost_log_mass, self._overflow = self._lost_log_mass[sources], self._overflow[sources]

    # The search for one token.

    def begin(self, sentence: Ints, score: Floats) -> None:
        """Begin the search for one token with analyses of these sentences and scores, (n,) each."""
        total = log_sums(sentence, score, self._num_sentences)
        self._before, self._all = total, np.where(np.isfinite(total), total, 0.0)
        nothing: Floats = np.zeros(self._num_sentences)
        self._at_goal = self._not_arrived = self._dropped = self._overflowed = self._num_actions = nothing

    def expand(self, sentence: Ints, others: Floats, at_goal: Floats) -> Floats:
        """Count all successors before any is pruned: scores of those that stay in search (n, m), and at the goal (n,).

        Returns what is in play (sentences,): log of the probability in search and of all that has been at the goal.
        """
        self._sentence, self._others = sentence, others
        total = self._all[sentence]
        self._shares, self._goal_shares = np.exp(others - total[:, None]), np.exp(at_goal - total)
        in_search = self._by_sentence(self._shares.sum(1))
        self._at_goal = self._at_goal + self._by_sentence(self._goal_shares)
        self._share_in_play = np.maximum(in_search + self._at_goal, np.exp(LEAST))
        self._in_play: Floats = self._all + np.log(self._share_in_play)
        return self._in_play

    def prune(self, arrived: Ints, going: Ints, chosen: Ints, floor: Floats) -> None:
        """Count what is pruned: all successors but those at the goal that arrive and the others that go on.

        Those that arrive are numbered by analyses, the others row by row. What a narrower search would keep, above
        ``floor`` (sentences,), overflows unless it is among the ``chosen``, for which the action beam has room.
        """
        self._goal_shares[arrived] = 0.0
        self._not_arrived = self._not_arrived + self._by_sentence(self._goal_shares)
        np.put(self._shares, going, 0.0)
        self._dropped = self._dropped + self._by_sentence(self._shares.sum(1))
        sources = np.concatenate([arrived, going // self._others.shape[1]])
        self._num_actions = self._num_actions + np.bincount(self._sentence[sources], minlength=self._num_sentences)
        if np.isfinite(self.narrow):
            np.put(self._shares, chosen, 0.0)
            least = np.maximum(floor, self._in_play - self.narrow)
            self._shares *= self._others > least[self._sentence, None]
            self._overflowed = self._overflowed + self._by_sentence(self._shares.sum(1)) / self._share_in_play

    def _by_sentence(self, shares: Floats) -> Floats:
        return np.bincount(self._sentence, shares, self._num_sentences).astype(np.float64)

    # The token.

    def take_over(
        self, before: Floats, not_arrived: Floats, dropped: Floats, overflowed: Floats, num_actions: Floats
    ) -> None:
        """Take over the statistics of a search for one token on a device, (sentences,) each."""
        self._before, self._not_arrived, self._dropped = before, not_arrived, dropped
        self._overflowed, self._num_actions = overflowed, num_actions

    def finish(self, near: Floats, kept: Arrivals, cut: Floats, log_mass: Floats) -> Mapping[str, Floats]:
        """End the search for a token; returns metrics by the names of ``TokenMetrics``, (sentences,) each.

        ``kept`` are the candidates that the word beam keeps, and ``log_mass`` is the log of their sum. ``cut`` is the
        log of the sum of all others, and ``near`` what a narrower search would have kept of these, as a share of all.
        """
        narrow_log_mass = self._narrow_log_mass(near, kept)
        alive = np.isfinite(log_mass)
        log_mass = np.where(alive, log_mass, 0.0)
        with np.errstate(divide="ignore"):
            # By the action beam, where the token's probability is unknown, and SHIFTs, mostly where it is improbable.
            in_search = self._before + np.log(self._dropped + self._not_arrived)
            loss = np.logaddexp(0.0, cut - log_mass) - np.log1p(-np.minimum(self._dropped, 1.0))
        self._lost_log_mass = np.logaddexp(self._lost_log_mass, np.logaddexp(in_search, cut))
        bound = np.logaddexp(0.0, self._lost_log_mass - log_mass)
        reached = log_sums(kept.sentence, kept.before, self._num_sentences)  # before the token's own probability
        syntactic = np.where(alive, self._before, 0.0) - np.where(alive, reached, 0.0)
        bits = {"beam_loss_bits": loss, "beam_bound_bits": bound, "syntactic_bits": syntactic}
        return {
            "narrow_log_mass": narrow_log_mass,
            "search_actions": self._num_actions,
            **{name: np.where(alive, nats / np.log(2), np.inf) for name, nats in bits.items()},
        }

    def _narrow_log_mass(self, near: Floats, kept: Arrivals) -> Floats:
        """The log of what a narrower search would have found (sentences,).

        It is -inf where a full beam has lost too much of it, and nan with a fixed beam.
        """
        if not np.isfinite(self.narrow):
            return np.full(self._num_sentences, np.nan)
        self._overflow = np.maximum(self._overflow, self._overflowed + near)
        inside = self._overflow[kept.sentence] <= MOST_OVERFLOW
        narrow = kept.take((kept.deficit < self.narrow) & inside)
        return log_sums(narrow.sentence, narrow.score, self._num_sentences)

    def near(self, some: Arrivals, found: Floats) -> Floats:
        """The share of all that was found which a narrower search would have kept among these: (sentences,)."""
        deficit = found[some.sentence] - some.score
        near = np.where(deficit < self.narrow, np.exp(-deficit), 0.0)
        return np.bincount(some.sentence, near, self._num_sentences).astype(np.float64)
