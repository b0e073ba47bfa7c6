"""At the size of real models, a sentence has the same scores, byte for byte, in a batch of any size."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.models.rnng.worlds import Tokens, build_model
from treelm.models.layers import precision
from treelm.models.rnng.network import RNNG
from treelm.models.search.config import SearchConfig


def _model() -> RNNG:
    model = build_model(Tokens(8953), 27, seed=3, embedding_size=256, hidden_size=256, dtype=torch.float32)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(0.2)  # 256 units together are enough
    return model


def _sentences(count: int) -> list[list[str]]:
    rng = np.random.default_rng(5)
    return [[str(word) for word in rng.integers(0, 8953, length)] for length in rng.integers(2, 4, count)]


@pytest.mark.isa
@pytest.mark.parametrize("matmul", ["highest", "medium"])
def test_a_sentence_scores_the_same_bytes_in_batches_of_1_7_and_64(matmul: str) -> None:
    model, sentences = _model(), _sentences(64)
    scores = []
    for batch_size, count in ((64, 64), (7, 14), (1, 6)):
        model.search = SearchConfig(action_beam=8, word_beam=3, batch_size=batch_size, matmul=matmul)  # type: ignore[arg-type]
        scores.append([score.log_probs.tobytes() for score in model.score(sentences[:count])])
    assert scores[0][:14] == scores[1]
    assert scores[0][:6] == scores[2]


@pytest.mark.isa
def test_a_sentence_scores_the_same_bytes_with_any_number_of_threads() -> None:
    model, sentences, before = _model(), _sentences(6), torch.get_num_threads()
    model.search = SearchConfig(action_beam=8, word_beam=3)
    scores = []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            scores.append([score.log_probs.tobytes() for score in model.score(sentences)])
    finally:
        torch.set_num_threads(before)
    assert scores[0] == scores[1] == scores[2]


@pytest.mark.isa
def test_a_sentence_scores_the_same_bytes_if_its_beginning_is_searched_with_that_of_others() -> None:
    model = _model()
    sentences = [[*start, *end] for start in _sentences(2) for end in _sentences(3)]
    model.search = SearchConfig(action_beam=8, word_beam=3)
    together = model.score(sentences)
    for sentence, score in zip(sentences, together, strict=True):
        assert score.log_probs.tobytes() == model.score([sentence])[0].log_probs.tobytes()


def test_the_precision_of_products_reaches_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    model, seen = build_model(Tokens(5), 2, seed=3), set[str]()
    monkeypatch.setattr(precision, "rounds_operands", lambda setting: False)
    addmm, before = torch.addmm, torch.get_float32_matmul_precision()

    def noting(*args: object, **kwargs: object) -> torch.Tensor:
        seen.add(torch.get_float32_matmul_precision())
        return addmm(*args, **kwargs)  # type: ignore[call-overload, no-any-return]

    monkeypatch.setattr(torch, "addmm", noting)
    for matmul in ("highest", "medium"):
        model.search = replace(model.search, matmul=matmul)
        model.score([["1"]])
        assert seen == {matmul}
        assert torch.get_float32_matmul_precision() == before
        seen.clear()
