"""Measures over the next-word distribution: right for every system, and a new one is a function and a line."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pandas
import pytest
import torch
from torch import Tensor

import treelm
from tests.legacy.make import HERE as RUNS
from tests.models.test_bits import build, cases
from treelm.errors import InputError
from treelm.models.base import LanguageModel
from treelm.models.capabilities import DocumentContext, Searching, has
from treelm.models.measures import MEASURES, apply_measures, measure, score_with_measures

SENTENCES = [text.split() for text in ("the cats see a dog , unbelievable", "the moon", "a dog barks at the dogs")]
EXACT = [
    (system, kind) for system, kind in cases(["word", "subword"]) if not isinstance(build(system, kind), Searching)
]


def chosen(log_probs: Tensor, next_token: Tensor) -> Tensor:
    """Log p of what comes, (n, 1)."""
    return log_probs.gather(1, next_token[:, None])


def at_boundaries(lm: LanguageModel, words: list[str], log_probs: np.ndarray) -> np.ndarray:
    """From log p of all tokens and the end, those of each word's first token and of the end."""
    lengths = [len(lm.vocabulary.encode([word], sentence_initial=n == 0).ids) for n, word in enumerate(words)]
    return log_probs[np.cumsum([0, *lengths])]


@pytest.mark.parametrize(("system", "kind"), EXACT)
def test_places_between_words_are_those_of_the_scores(system: str, kind: str) -> None:
    lm = build(system, kind)
    for in_document in {False, has(lm, DocumentContext)}:
        scores = score_with_measures(lm, SENTENCES, in_document=in_document)
        found = lm.reduce_next_log_probs(SENTENCES, chosen, in_document=in_document)
        for words, score, values in zip(SENTENCES, scores, found, strict=True):
            np.testing.assert_allclose(values[:, 0], at_boundaries(lm, words, score.log_probs), atol=1e-9)


@pytest.mark.parametrize(("system", "kind"), cases(["word", "subword"]))
def test_columns_are_those_of_the_states_word_by_word(system: str, kind: str) -> None:
    lm, words = build(system, kind), SENTENCES[0]
    _, score = score_with_measures(lm, [SENTENCES[1], words], list(MEASURES.values()))
    state = lm.start(1)
    for number, word in enumerate(words):
        token = lm.vocabulary.encode([word], sentence_initial=number == 0).ids[0]
        before = lm.next_word_log_probs(state)[0]
        state = lm.extend(state, [word])
        after = lm.next_word_log_probs(state)[0]
        shares = (after - after.logsumexp(0)).exp()
        entropy = -sum(p * math.log2(p) for p in shares.tolist() if p > 0)
        assert score.columns["next_entropy_bits"][number] == pytest.approx(entropy, abs=1e-8)
        assert score.columns["next_rank"][number] == 1 + int((before > before[token]).sum())


def test_ties_share_the_best_rank_and_lost_probability_changes_nothing() -> None:
    log_probs = torch.tensor([[0.2, 0.4, 0.2, 0.0, 0.2]], dtype=torch.float64).log().repeat(3, 1)
    log_probs[1] -= 5.0  # as of a search that has lost most of it
    log_probs[2] = -torch.inf
    rank, entropy = MEASURES["next_rank"], MEASURES["next_entropy_bits"]
    found = apply_measures([rank, entropy], log_probs, torch.tensor([2, 3, 1]))
    assert found[:2, 0].tolist() == [2, 5]
    expected = 0.4 * math.log2(2.5) + 0.6 * math.log2(5)
    assert found[:2, 1].tolist() == pytest.approx([expected, expected])
    assert found[2].isnan().all()


@pytest.fixture
def largest() -> Iterator[str]:
    @measure("next_largest", at="after")
    def largest(log_probs: Tensor, next_token: Tensor) -> Tensor:
        return log_probs.max(1).values.exp()

    yield "next_largest"
    del MEASURES["next_largest"]


@pytest.mark.filterwarnings("ignore:.* are unknown to ")
@pytest.mark.parametrize("system", ["lstm", "rnng"])
def test_a_new_measure_is_a_column_of_every_system(system: str, largest: str) -> None:
    lm = treelm.load(RUNS / system)
    frame = pandas.DataFrame({"sentence_id": [1, 1, 2], "word": ["The", "city", "I"]})
    found = treelm.surprisal_table(lm, frame, columns=[largest, "next_rank"])
    state = lm.extend(lm.start(1), ["The"])
    shares = lm.next_word_log_probs(state)[0].softmax(0)
    assert found[largest][0] == pytest.approx(float(shares.max()))
    assert found["next_rank"].dtype == "int64"
    (sentence,) = lm.surprisal(["The city"], measures=[largest])
    assert [word.columns[largest] for word in sentence.words] == pytest.approx(found[largest][:2].tolist())
    with pytest.raises(InputError, match=r"no measure 'next_large'; did you mean next_largest\?"):
        lm.surprisal(["The city"], measures=["next_large"])
