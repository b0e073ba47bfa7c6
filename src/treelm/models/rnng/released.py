"""The scoring of the public code of Noji & Oseki (2021), for comparison with published results.

Before the softmax, its search masks other actions than its training does: the root is never closed before the last
word, so that the length of the sentence is known; stacks and actions are bounded by that length; after the last word
closing is free, and the end of the sentence has no probability. So these scores are not the model's probabilities. The
bounds here are those of a batch of one sentence; the public code takes them from the longest sentence of a batch.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from treelm.errors import InputError
from treelm.models.rnng import arena as at
from treelm.models.rnng.arena import SearchWeights
from treelm.models.rnng.machine import StackMachine
from treelm.models.search.analyses import Analyses, AnalysisTable, Endings, best
from treelm.models.search.beam import Beam, Goal, WordSearch
from treelm.models.search.config import SearchConfig
from treelm.models.search.machine import WordHead
from treelm.models.search.rows import Bools, Floats, Ints
from treelm.models.search.validity import OPEN
from treelm.trees.transitions import FIRST_NT, REDUCE, SHIFT


class ReleasedMachine(StackMachine):
    """The model's machine, with the actions that the public code's search allows."""

    def __init__(self, weights: SearchWeights, lengths: Ints) -> None:
        """``lengths`` (sentences,) are the numbers of tokens."""
        if weights.config.order != "top-down":
            raise InputError("the released search is top-down, this model in-order", remedy="search by 'beam'")
        super().__init__(weights)
        self._lengths, self._num_read = lengths, 0  # tokens that each unfinished sentence has read
        self._stack_size = np.ceil(np.minimum(lengths + 20, 100) / 8).astype(np.int64) * 8
        self._max_actions = np.maximum(100, 5 * lengths)

    def valid(self, sentence: Ints, items: Ints) -> Bools:
        """Which actions the public code allows: (n, A)."""
        config, num_open, depth = self.weights.config, items[:, at.NUM_OPEN], items[:, at.DEPTH]
        in_word = items[:, at.IN_WORD] == 1
        size, left = self._stack_size[sentence], self._lengths[sentence] - self._num_read
        mask = np.zeros((len(items), self.num_actions), np.bool_)
        mask[:, SHIFT] = (num_open > 0) & (depth < size - 1)
        mask[:, REDUCE] = (items[:, at.TOP] != OPEN) & (num_open > 1) & (depth >= 2) & ~in_word
        opens = (num_open < config.max_open) & (items[:, at.NUM_CONSECUTIVE] < config.max_consecutive)
        opens &= (depth < size - 2) & ~in_word
        opens &= self._max_actions[sentence] - items[:, at.NUM_ACTIONS] >= left + num_open + 3
        mask[:, FIRST_NT:] = opens[:, None]
        return mask

    def shift(self, analyses: AnalysisTable, tokens: Ints) -> Analyses:
        """SHIFT one token on each of these stacks: all unfinished sentences read side by side."""
        self._num_read += 1
        return super().shift(analyses, tokens)


class ReleasedWordSearch(WordSearch):
    """The public code's search, which stops when enough analyses have arrived, and has no floor."""

    def __init__(self, beam: Beam, goal: Goal, keep: int) -> None:
        """Start with counts of 0: of all that arrive, and of those from below the action beam."""
        super().__init__(beam, goal, keep)
        self._count = np.zeros(beam.num_sentences, np.int64)  # arrived
        self._num_forced = np.zeros(beam.num_sentences, np.int64)  # arrived from below the action beam
        self._most = min(2 * self._sizes.action_beam, self._sizes.action_beam + 5 * self._sizes.fast_track)

    def _admitted(self, inside: Bools, shifted: Floats) -> Bools:
        arrives = super()._admitted(inside, shifted)
        self._num_forced += arrives.sum(1) - inside.sum(1)
        room = np.maximum(self._most - self._count, 0)
        for index in np.flatnonzero(arrives.sum(1) > room).tolist():
            arrives[index] = best(np.where(arrives[index], shifted[index], -np.inf)[None], int(room[index]))[0]
        self._count += arrives.sum(1)
        return arrives

    @property
    def _open(self) -> Bools:
        return (self._count < self._most) & (self._count - self._num_forced < self._sizes.action_beam)

    def _raise_floor(self, scores: Floats, arrives: Bools) -> None:
        """Do nothing: the public code has no floor."""


class ReleasedBeam(Beam):
    """The public code's beam, in which closing costs nothing."""

    word_search: ClassVar[type[WordSearch]] = ReleasedWordSearch

    def _close(self, analyses: Analyses) -> Endings:
        histories, num_open = analyses.history.copy(), self.machine.num_open(analyses.top)
        for count in range(int(num_open.max(initial=0))):
            rows = np.flatnonzero(num_open > count)
            histories[rows] = self.machine.histories.append(histories[rows], np.full(len(rows), REDUCE))
        return self.ended([(analyses.sentence, analyses.score, histories)])


def released_beam(weights: SearchWeights, head: WordHead, settings: SearchConfig, lengths: Ints) -> ReleasedBeam:
    """The beam of sentences with these numbers of tokens."""
    return ReleasedBeam(ReleasedMachine(weights, lengths), head, settings, len(lengths))
