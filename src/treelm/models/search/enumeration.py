"""Enumeration of all trees that a tiny model can build, whose probabilities must sum to 1."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from treelm.models.base import ProbabilityMass
from treelm.models.search.analyses import Analyses, joined
from treelm.models.search.machine import ending_actions
from treelm.models.search.sentences import Searchable
from treelm.trees.transitions import REDUCE, SHIFT

MOST_TOKENS, MOST_ANALYSES = 50, 50_000


def enumerate_mass(model: Searchable, *, max_tokens: int = 2) -> ProbabilityMass | None:
    """Probability of all complete trees over up to ``max_tokens`` tokens, and of all analyses that need more.

    None beyond ``MOST_TOKENS`` or ``MOST_ANALYSES``: only a tiny vocabulary with few labels and low bounds on open
    nonterminals can be enumerated.
    """
    enumeration = _Enumeration(model, max_tokens)
    return None if enumeration.vocabulary_size > MOST_TOKENS else enumeration.run()


class _Enumeration:
    @torch.inference_mode()
    def __init__(self, model: Searchable, max_tokens: int) -> None:
        """Begin with nothing counted, on a machine of its own."""
        self._machine, self._head = model.machine(), model.head(1)
        self.vocabulary_size, self._max_tokens = self._head.vocabulary_size, max_tokens
        self._finished, self._unfinished, self._num_pairs, self._num_analyses = 0.0, 0.0, 0, 0

    @torch.inference_mode()
    def run(self) -> ProbabilityMass | None:
        """Enumerate all analyses with equally many tokens at a time."""
        analyses = self._machine.start(1)
        for num_tokens in range(self._max_tokens + 1):
            waiting = list[Analyses]()
            while len(analyses):
                waiting.append(self._at_shift(analyses))
                self._num_analyses += int(np.isfinite(analyses.log_probs[:, REDUCE:]).sum())
                if self._num_analyses > MOST_ANALYSES:
                    return None
                analyses = self._step(analyses)
            before_shift = joined(waiting)
            if num_tokens == self._max_tokens:
                self._unfinished = float(np.exp(before_shift.score).sum())
            elif len(before_shift) * self.vocabulary_size > MOST_ANALYSES:
                return None
            else:
                analyses = self._shift(before_shift)
        return self._result()

    def _at_shift(self, analyses: Analyses) -> Analyses:
        """The analyses that may SHIFT, with its probability counted."""
        shifting = analyses.take(np.isfinite(analyses.log_probs[:, SHIFT]))
        shifting.score[:] += shifting.log_probs[:, SHIFT]
        return shifting

    def _step(self, analyses: Analyses) -> Analyses:
        """Apply all other actions; successors that end the sentence are counted, not kept."""
        scores = analyses.score[:, None] + analyses.log_probs
        ends = ending_actions(self._machine, analyses)
        possible = np.isfinite(scores)
        possible[:, SHIFT] = False
        self._finished += float(np.exp(scores[possible & ends]).sum())
        self._num_pairs += int((possible & ends).sum())
        rows, actions = np.nonzero(possible & ~ends)
        if len(rows) == 0:
            return analyses.take(rows)
        return self._machine.apply(analyses, rows, actions, scores[rows, actions])

    def _shift(self, analyses: Analyses) -> Analyses:
        """Shift every token on every analysis."""
        log_probs = self._head.log_probs(analyses.outputs).cpu().numpy()
        rows, tokens = np.nonzero(np.isfinite(log_probs))
        shifting = analyses.take(rows)
        return self._machine.shift(replace(shifting, score=shifting.score + log_probs[rows, tokens]), tokens)

    def _result(self) -> ProbabilityMass:
        description = f"trees over up to {self._max_tokens} of {self.vocabulary_size} tokens"
        return ProbabilityMass(
            finished=self._finished,
            unfinished=self._unfinished,
            num_pairs=self._num_pairs,
            description=description,
        )
