"""Everything that a tiny model can build: does it have probability 1 together?"""

from __future__ import annotations

import numpy as np
import torch

from treelm.models.base import ProbabilityMass
from treelm.models.rnng import stacks as at
from treelm.models.rnng.machine import Machine
from treelm.models.rnng.weights import SearchWeights
from treelm.models.search.analyses import Analyses, joined
from treelm.models.search.rows import Ints
from treelm.models.search.words import WordHead
from treelm.trees.transitions import REDUCE, SHIFT

MOST_SYMBOLS, MOST_ANALYSES = 50, 50_000


def enumerate_mass(weights: SearchWeights, *, max_symbols: int = 2) -> ProbabilityMass | None:
    """Probability of all complete trees over up to ``max_symbols`` symbols, and of all analyses that need more.

    None beyond ``MOST_SYMBOLS`` or ``MOST_ANALYSES``: only a tiny vocabulary with few labels and low bounds on open
    nonterminals can be enumerated.
    """
    if len(weights.symbols) > MOST_SYMBOLS:
        return None
    return _Enumeration(weights, max_symbols).run()


class _Enumeration:
    def __init__(self, weights: SearchWeights, max_symbols: int) -> None:
        self._weights, self._max_symbols = weights, max_symbols
        self._machine = Machine(weights)
        self._head = WordHead(weights, 1)
        self._finished, self._unfinished, self._num_pairs, self._num_analyses = 0.0, 0.0, 0, 0

    @torch.inference_mode()
    def run(self) -> ProbabilityMass | None:
        """All analyses with equally many symbols at a time."""
        analyses = self._machine.start(1)
        for num_symbols in range(self._max_symbols + 1):
            waiting = list[Analyses]()
            while len(analyses):
                waiting.append(self._at_shift(analyses))
                self._num_analyses += int(np.isfinite(analyses.log_probs[:, REDUCE:]).sum())
                if self._num_analyses > MOST_ANALYSES:
                    return None
                analyses = self._step(analyses)
            before_shift = joined(waiting)
            if num_symbols == self._max_symbols:
                self._unfinished = float(np.exp(before_shift.score).sum())
            elif len(before_shift) * len(self._weights.symbols) > MOST_ANALYSES:
                return None
            else:
                analyses = self._shift(before_shift)
        return self._result()

    def _at_shift(self, analyses: Analyses) -> Analyses:
        """These analyses with the probability of SHIFT counted, where it is valid."""
        shifting = analyses.take(np.isfinite(analyses.log_probs[:, SHIFT]))
        shifting.score[:] += shifting.log_probs[:, SHIFT]
        return shifting

    def _step(self, analyses: Analyses) -> Analyses:
        """All successors by other actions; those that end the sentence are counted."""
        scores = analyses.score[:, None] + analyses.log_probs
        ends = np.zeros(scores.shape, np.bool_)
        if self._weights.config.order == "in-order":
            ends[:, -1] = True
        else:
            ends[analyses.items[:, at.NUM_OPEN] == 1, REDUCE] = True
        possible = np.isfinite(scores)
        possible[:, SHIFT] = False
        self._finished += float(np.exp(scores[possible & ends]).sum())
        self._num_pairs += int((possible & ends).sum())
        rows, actions = np.nonzero(possible & ~ends)
        if len(rows) == 0:
            return analyses.take(rows)
        return self._machine.apply(analyses, rows, actions, np.zeros(len(rows), np.int64), scores[rows, actions])

    def _shift(self, analyses: Analyses) -> Analyses:
        """Every analysis with every symbol."""
        log_probs = self._head.log_probs(analyses.outputs).cpu().numpy()
        rows, symbols = np.nonzero(np.isfinite(log_probs))
        zeros: Ints = np.zeros(len(rows), np.int64)
        score = analyses.score[rows] + log_probs[rows, symbols]
        shortfall = analyses.shortfall[rows]
        return self._machine.shift(zeros, score, shortfall, analyses.top[rows], analyses.history[rows], symbols)

    def _result(self) -> ProbabilityMass:
        description = f"trees over up to {self._max_symbols} of {len(self._weights.symbols)} symbols"
        return ProbabilityMass(
            finished=self._finished,
            unfinished=self._unfinished,
            num_pairs=self._num_pairs,
            description=description,
        )
