"""The UCL corpus (Frank et al. 2013) as de Varda et al. (2023) published it.

205 sentences, self-paced reading and eye movements. It has no licence, so it is never shipped.
"""

from __future__ import annotations

import math

import numpy as np

from treelm.evaluation.human.corpora import CorpusFile, ReadingCorpus, find_folder, published_table, rows_of
from treelm.evaluation.human.material import number

NAME = "ucl"
FILE = CorpusFile("all_measures.csv", "db3ccd106220e1e3d7d64871b5f7c05a9d159ef4cb639f985b792d559686f7f6")
RESPONSES = ("self_paced_reading_time", "RTfirstfix", "RTfirstpass", "RTrightbound", "RTgopast")
NUM_FOLDS = 10
_SOURCE = "git clone https://github.com/Andrea-de-Varda/prediction-resource (no licence), then --data FOLDER"
_REFERENCES = ("tetragram", "rnn", "psg", "s_GPT2", "s_GPT2_xl")
_IN_NATS = ("rnn", "psg", "bigram", "trigram", "tetragram")
_LENGTH, _FREQUENCY, _PLACE = "length", "Subtlex_log10", "context_length"


def load(folder: str = "") -> ReadingCorpus:
    """Read the corpus from a folder with ``all_measures.csv``; the first words of sentences have no times there.

    Predictors: length, log frequency in SUBTLEX; place in the sentence without lags. Ten folds of sentences. Raises
    ``InputError`` where it is not there, or not the release that is known.
    """
    place, _ = find_folder(NAME, folder, {"published": (FILE,)}, remedy=_SOURCE)
    rows: dict[tuple[int, int], tuple[str, dict[str, str]]] = {}
    sentences: dict[int, str] = {}
    for where, row in rows_of(place / FILE.path):
        rows[int(row["sent_id"]), int(row[_PLACE])] = where, row
        sentences[int(row["sent_id"])] = row["sentence"]
    order = {sentence: fold % NUM_FOLDS for fold, sentence in enumerate(sorted(sentences))}
    words = [(own, at, word) for own in order for at, word in enumerate(sentences[own].split())]

    def column(name: str) -> list[float]:
        found = [rows.get((own, at)) for own, at, _ in words]
        return [math.nan if one is None else number(one[1][name], one[0]) for one in found]

    names = next(iter(rows.values()))[1]
    bits = {name: [value / math.log(2) for value in column(name)] for name in _IN_NATS}
    bits |= {
        name: [value / math.log(2) for value in column(name)] for name in names if name.startswith(("s_GPT", "s_gpt"))
    }
    identifiers = tuple(str(own) for own, _, _ in words)
    return ReadingCorpus(
        name=NAME,
        key_names=("sent_id", _PLACE),
        keys=tuple((str(own), str(at)) for own, at, _ in words),
        words=tuple(word for _, _, word in words),
        sentences=identifiers,
        documents=identifiers,
        responses={name: np.array(column(name)) for name in RESPONSES},
        predictors={name: np.array(column(name)) for name in (_LENGTH, _FREQUENCY)},
        baseline=(_LENGTH, _FREQUENCY),
        controls={_PLACE: np.array(column(_PLACE))},
        lag_groups=identifiers,
        num_lags=1,
        folds=tuple(str(order[own]) for own, _, _ in words),
        fold_kind="folds of sentences",
        usable=np.array(column("is_start_end")) == 0,
        published=published_table(bits),
        references=_REFERENCES,
        notes=("first and last words of sentences are left out",),
    )
