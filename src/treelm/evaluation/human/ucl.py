"""The UCL corpus (Frank et al. 2013) as de Varda et al. (2023) published it, and BabyLM's reading score on it.

205 sentences, self-paced reading and eye movements. It has no licence, so it is never shipped. The score (the
challenge's evaluation pipeline of 2025) is the per cent of the variance of a time that is left by length, frequency,
place and their products, and that surprisal explains, on all words and without folds. Of eye movements the mean over
four measures; of self-paced reading, length and surprisal of the word before are in the baseline, too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from treelm.evaluation.human.corpora import ReadingCorpus, find_folder, published_surprisals
from treelm.evaluation.human.material import Floats, Surprisals
from treelm.evaluation.human.regression import fit

NAME = "ucl"
FILE, _SHA256 = "all_measures.csv", "db3ccd106220e1e3d7d64871b5f7c05a9d159ef4cb639f985b792d559686f7f6"
RESPONSES = ("self_paced_reading_time", "RTfirstfix", "RTfirstpass", "RTrightbound", "RTgopast")
NUM_FOLDS = 10
_SOURCE = "git clone https://github.com/Andrea-de-Varda/prediction-resource (no licence), then --data FOLDER"
_REFERENCES = ("tetragram", "rnn", "psg", "s_GPT2", "s_GPT2_xl")
_IN_NATS = ("rnn", "psg", "bigram", "trigram", "tetragram")
_TEXTS = ("item", "word", "word2", "sentence")
_LENGTH, _FREQUENCY, _PLACE = "length", "Subtlex_log10", "context_length"


def load(folder: str = "") -> ReadingCorpus:
    """Read the corpus from a folder with ``all_measures.csv``, in ten folds of sentences.

    The first words of sentences have no times there.

    Raises ``InputError`` where it is not there, or not the release that is known.
    """
    import pandas as pd

    place, _ = find_folder(NAME, folder, {"published": {FILE: _SHA256}}, remedy=_SOURCE)
    text = pd.read_csv(place / FILE, dtype=str)  # pandas before 3 may read a float a bit wrong
    types = dict.fromkeys(text.columns.drop(list(_TEXTS)), float) | {"sent_id": int, _PLACE: int}
    table = text.astype(types)
    sentences = table.drop_duplicates("sent_id").sort_values("sent_id")
    words = sentences[["sent_id"]].assign(
        fold=np.arange(len(sentences)) % NUM_FOLDS, own=sentences["sentence"].str.split()
    )
    words = words.explode("own", ignore_index=True)
    words[_PLACE] = words.groupby("sent_id").cumcount()
    words = words.merge(table, on=["sent_id", _PLACE], how="left")
    control = words[_PLACE].where(words["item_id"].notna())  # first words, which have no times, have no place either
    in_nats = [*_IN_NATS, *(name for name in table.columns if name.startswith(("s_GPT", "s_gpt")))]
    identifiers = tuple(words["sent_id"].astype(str))
    return ReadingCorpus(
        name=NAME,
        key_names=("sent_id", _PLACE),
        keys=tuple(zip(identifiers, words[_PLACE].astype(str), strict=True)),
        words=tuple(words["own"]),
        sentences=identifiers,
        documents=identifiers,
        responses={name: words[name].to_numpy(float) for name in RESPONSES},
        predictors={name: words[name].to_numpy(float) for name in (_LENGTH, _FREQUENCY)},
        controls={_PLACE: control.to_numpy(float)},
        lag_groups=identifiers,
        num_lags=1,
        folds=tuple(words["fold"].astype(str)),
        fold_kind="folds of sentences",
        usable=(words["is_start_end"] == 0).to_numpy(),
        published=published_surprisals(words[in_nats] / math.log(2)),
        references=_REFERENCES,
        notes=("first and last words of sentences are left out",),
    )


@dataclass(frozen=True, kw_only=True)
class BabyLMScore:
    """Both scores in per cent, and the number of words that each stands on."""

    name: str
    eye_tracking: float
    self_paced_reading: float
    num_words: tuple[int, int]


def reading_score(corpus: ReadingCorpus, model: Surprisals) -> BabyLMScore:
    """Compute BabyLM's scores of a model on the UCL corpus.

    A score is over all words that have the values it needs, those of the word before included.
    """
    own = [*corpus.predictors.values(), *corpus.controls.values()]
    before = [corpus.shifted(corpus.predictors["length"], 1), corpus.shifted(model.bits, 1)]
    eyes = [_gain(corpus.responses[name], own, model.bits) for name in sorted(RESPONSES[1:])]
    reading = _gain(corpus.responses[RESPONSES[0]], [*own, *before], model.bits)
    return BabyLMScore(
        name=model.name,
        eye_tracking=float(np.mean([gain for gain, _ in eyes])),
        self_paced_reading=reading[0],
        num_words=(eyes[0][1], reading[1]),
    )


def _gain(times: Floats, predictors: Sequence[Floats], bits: Floats) -> tuple[float, int]:
    """The share of the variance left by the baseline that surprisal explains, in per cent, and the number of words."""
    base = np.column_stack([*predictors, *(one * other for one, other in combinations(predictors, 2))])
    there = np.isfinite(np.column_stack([times, base, bits])).all(axis=1)
    before = float(fit(times[there], base[there]).rsquared)
    after = float(fit(times[there], np.column_stack([base, bits])[there]).rsquared)
    return 100 * (after - before) / (1 - before), int(there.sum())
