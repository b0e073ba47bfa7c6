"""What a search drops: all of it is known when it is dropped, as a share of what the sentence began with."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from treelm.models.search.rows import Floats, Ints
from treelm.models.search.selection import log_sums

_LEAST = -700.0  # a log share that counts for nothing, and whose exponential is still computed fast


@dataclass(frozen=True, kw_only=True)
class Cut:
    """What a search for a symbol dropped on the way, by sentence, as shares of the probability that it began with.

    How probable the symbol was there is not counted, for in most cases it is not known.
    """

    dropped: Floats  # by the action beam
    refused: Floats  # SHIFTs, most of them because the symbol was improbable
    crowded: Floats  # of what was in play: what a narrower search would have kept, for want of room


class Account:
    """What becomes of the probability that one search began with.

    Sums are made sentence by sentence, over its own entries alone, so that they do not depend on company.
    """

    def __init__(self, sentence: Ints, score: Floats, num_sentences: int, narrow: float) -> None:
        """Begin with analyses; ``narrow`` is the threshold of the narrower search."""
        total = log_sums(sentence, score, num_sentences)
        self._all = np.where(np.isfinite(total), total, 0.0)
        self._num_sentences, self._narrow = num_sentences, narrow
        nothing: Floats = np.zeros(num_sentences)
        self._at_goal = self._arrived = self._dropped = self._crowded = nothing

    @property
    def cut(self) -> Cut:
        """What was dropped so far."""
        return Cut(
            dropped=self._dropped.clip(0, 1),
            refused=(self._at_goal - self._arrived).clip(0, 1),
            crowded=self._crowded,
        )

    def expand(self, sentence: Ints, others: Floats, at_goal: Floats) -> Floats:
        """Note what can come next: successors that stay in search (n, m), and those at the goal (n,), unpruned.

        Gives log of all that is in play, by sentence: what is in search, and what has ever stood at the goal.
        """
        self._sentence, self._others = sentence, others
        self._shares = others - self._all[sentence, None]
        np.exp(np.maximum(self._shares, _LEAST, out=self._shares), out=self._shares)
        in_search = np.bincount(sentence, self._shares.sum(1), self._num_sentences)
        self._dropped = self._dropped + in_search
        self._at_goal = self._at_goal + self._sums(sentence, at_goal)
        self._share_in_play = np.maximum(in_search + self._at_goal, np.exp(_LEAST))
        self._in_play: Floats = self._all + np.log(self._share_in_play)
        return self._in_play

    def choose(self, sentence: Ints, scores: Floats, floor: Floats) -> None:
        """Note which of these successors found room in the action beam; none below ``floor`` needs any."""
        least = np.maximum(floor, self._in_play - self._narrow)
        self._shares *= self._others > least[self._sentence, None]
        near = self._shares.sum(1)
        is_near = scores > least[sentence]
        crowded = np.bincount(self._sentence, near, self._num_sentences) - self._sums(
            sentence[is_near], scores[is_near]
        )
        self._crowded = self._crowded + crowded.clip(0) / self._share_in_play

    def arrive(self, sentence: Ints, at_goal: Floats) -> None:
        """Note which arrive."""
        self._arrived = self._arrived + self._sums(sentence, at_goal)

    def go_on(self, sentence: Ints, scores: Floats) -> None:
        """Note which stay in search."""
        self._dropped = self._dropped - self._sums(sentence, scores)

    def _sums(self, sentence: Ints, scores: Floats) -> Floats:
        shares = np.exp(np.maximum(scores - self._all[sentence], _LEAST))
        return np.bincount(sentence, shares, self._num_sentences).astype(np.float64)
