"""No word that people's reading is measured on is unknown to the models of open-english, as the commands count them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from tests.evaluation.human.test_corpora import folder
from tests.shipped import need
from treelm.corpora.data_packages import DATA_PACKAGES
from treelm.corpora.running_text import normalise
from treelm.evaluation.human import natural_stories, sap, ucl
from treelm.evaluation.human.material import Material, score_material
from treelm.inference.processes import in_process
from treelm.models.persistence.storage import load_model
from treelm.models.scores import SentenceScore

NAMES = [name for one in DATA_PACKAGES for name in one.models if name.endswith("-open-english")]
CORPORA = {natural_stories.NAME: natural_stories.load, ucl.NAME: ucl.load}


class Reader:
    """Notes every word that a model reads; its log probabilities are 0, since a search would take minutes."""

    def __init__(self) -> None:
        self.words: set[str] = set()

    def score(self, sentences: Sequence[Sequence[str]]) -> list[SentenceScore]:
        self.words.update(word for words in sentences for word in words)
        return [
            SentenceScore(log_probs=np.zeros(len(words) + 1), word_of_token=np.arange(len(words)), is_lower_bound=False)
            for words in sentences
        ]


def num_unknown(name: str, material: Material) -> int:
    """Words that the commands count as unknown; whatever is known is spelled by its tokens in full."""
    lm, reader = load_model(name), Reader()
    found = score_material(lm, material, name=name, normalise=normalise, compute=in_process(reader.score))
    assert len(found.is_unknown) == len(material)
    words = [word for word in sorted(reader.words) if lm.vocabulary.unknown_class(word) is None]
    assert [lm.vocabulary.spell(lm.vocabulary.encode([word]).ids.tolist()) for word in words] == words
    return int(found.is_unknown.sum())


@pytest.mark.parametrize("name", NAMES)
def test_no_word_of_sap_is_unknown(name: str) -> None:
    need(name)
    assert num_unknown(name, sap.material()) == 0


@pytest.mark.parametrize("corpus", CORPORA)
@pytest.mark.parametrize("name", NAMES)
def test_no_word_of_a_corpus_of_reading_times_is_unknown(name: str, corpus: str) -> None:
    need(name)
    assert num_unknown(name, CORPORA[corpus](folder(corpus))) == 0


def test_words_that_a_small_model_does_not_know_are_counted() -> None:
    assert num_unknown("ngram-gum-open", sap.material()) > 500
