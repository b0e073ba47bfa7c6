"""The reading score of the BabyLM challenge (its evaluation pipeline of 2025), on the UCL corpus.

Per cent of the variance of a time that is left by length, frequency, place and their products, and that surprisal
explains, on all words and without folds. Of eye movements the mean over four measures; of self-paced reading, length
and surprisal of the word before are in the baseline, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from treelm.evaluation.human.corpora import ReadingCorpus
from treelm.evaluation.human.material import Floats, Surprisals
from treelm.evaluation.human.regression import fit

EYE_TRACKING = ("RTfirstfix", "RTfirstpass", "RTgopast", "RTrightbound")
SELF_PACED = "self_paced_reading_time"


@dataclass(frozen=True, kw_only=True)
class BabyLMScore:
    """Both scores in per cent, and the number of words that each stands on."""

    name: str
    eye_tracking: float
    self_paced_reading: float
    num_words: tuple[int, int]


def reading_score(corpus: ReadingCorpus, model: Surprisals) -> BabyLMScore:
    """Compute the scores of a model on the UCL corpus (``ucl.load``).

    The pipeline leaves out nothing but words without a value; first words, which the corpus lacks, have no word before.
    """
    own = [*corpus.predictors.values(), *corpus.controls.values()]
    before = [corpus.shifted(corpus.predictors["length"], 1), corpus.shifted(model.bits, 1)]
    eyes = [_gain(corpus.responses[name], own, model.bits) for name in EYE_TRACKING]
    reading = _gain(corpus.responses[SELF_PACED], [*own, *before], model.bits)
    return BabyLMScore(
        name=model.name,
        eye_tracking=float(np.mean([gain for gain, _ in eyes])),
        self_paced_reading=reading[0],
        num_words=(eyes[0][1], reading[1]),
    )


def _gain(times: Floats, predictors: Sequence[Floats], bits: Floats) -> tuple[float, int]:
    """Per cent of what the baseline leaves that surprisal explains, and the number of words."""
    base = np.column_stack([*predictors, *(one * other for one, other in combinations(predictors, 2))])
    there = np.isfinite(np.column_stack([times, base, bits])).all(axis=1)
    before = float(fit(times[there], base[there]).rsquared)
    after = float(fit(times[there], np.column_stack([base, bits])[there]).rsquared)
    return 100 * (after - before) / (1 - before), int(there.sum())
