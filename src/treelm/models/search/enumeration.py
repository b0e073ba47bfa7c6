"""Enumeration of all trees that a tiny model can build, whose probabilities must sum to 1."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from treelm.models.base import ProbabilityMass
from treelm.models.search.analyses import joined
from treelm.models.search.machine import ending_actions
from treelm.models.search.sentences import Searchable
from treelm.trees.transitions import REDUCE, SHIFT

MOST_TOKENS, MOST_ANALYSES = 50, 50_000


@torch.inference_mode()
def enumerate_mass(model: Searchable, *, max_tokens: int = 2) -> ProbabilityMass | None:
    """The probability of all complete trees over up to ``max_tokens`` tokens, and of all analyses that need more.

    Returns None if there are more than ``MOST_TOKENS`` tokens or ``MOST_ANALYSES`` analyses: only a tiny vocabulary
    with few labels and low bounds on open nonterminals can be enumerated.
    """
    machine, head = model.machine(), model.head(1)
    if head.vocabulary_size > MOST_TOKENS:
        return None
    finished, num_pairs, num_analyses = 0.0, 0, 0
    analyses = machine.start(1)
    for num_tokens in range(max_tokens + 1):
        at_shift = [analyses.take(np.empty(0, np.int64))]
        while len(analyses):
            scores = analyses.score[:, None] + analyses.log_probs
            possible, ends = np.isfinite(scores), ending_actions(machine, analyses)
            shifting = np.flatnonzero(possible[:, SHIFT])
            at_shift.append(replace(analyses.take(shifting), score=scores[shifting, SHIFT]))
            num_analyses += int(possible[:, REDUCE:].sum())
            if num_analyses > MOST_ANALYSES:
                return None
            possible[:, SHIFT] = False
            finished += float(np.exp(scores[possible & ends]).sum())
            num_pairs += int((possible & ends).sum())
            rows, actions = np.nonzero(possible & ~ends)
            if len(rows) == 0:
                break
            analyses = machine.apply(analyses, rows, actions, scores[rows, actions])
        analyses = joined(at_shift)
        if num_tokens < max_tokens:
            if len(analyses) * head.vocabulary_size > MOST_ANALYSES:
                return None
            log_probs = head.log_probs(analyses.outputs).cpu().numpy()
            rows, tokens = np.nonzero(np.isfinite(log_probs))
            shifted = replace(analyses.take(rows), score=analyses.score[rows] + log_probs[rows, tokens])
            analyses = machine.shift(shifted, tokens)
    return ProbabilityMass(
        finished=finished,
        unfinished=float(np.exp(analyses.score).sum()),
        num_pairs=num_pairs,
        description=f"trees over up to {max_tokens} of {head.vocabulary_size} tokens",
    )
