"""What every stream model gets from ``begin`` and ``read``."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.models.gradients import assert_same_loss_and_gradients
from tests.models.stream_toys import ToyStreamLM, toy
from treelm.corpora.encoding import encode_words
from treelm.corpora.stream_batches import StreamBatch
from treelm.evaluation.audit import audit

SENTENCES = [list("1234567"), list("20"), list("7"), list("55512034")]


def stream_batch(tokens: np.ndarray, *, start: int, stop: int, mask: np.ndarray | None = None) -> StreamBatch:
    """Steps of rows of tokens (B, length); the first input is the end token 8."""
    shifted = np.concatenate([np.full((len(tokens), 1), 8), tokens], 1)
    return StreamBatch(
        inputs=shifted[:, start:stop].T,
        targets=shifted[:, start + 1 : stop + 1].T,
        mask=mask,
        continues=start > 0,
        num_words=3,
        num_sentences=1,
        positions=np.full(len(tokens), start),
        names=("toy",) * len(tokens),
    )


TOKENS = np.random.default_rng(0).integers(0, 9, (5, 20))


def plain_log_probs(model: ToyStreamLM, tokens: list[int]) -> torch.Tensor:
    """log p of every token, step by step from the zero state."""
    hidden, found, before = torch.zeros(model.config.size, dtype=torch.float64), [], 8
    for token in tokens:
        hidden = torch.tanh(model.embedding[before].double() + model.recurrent.double() @ hidden)
        found.append((model.embedding.double() @ hidden + model.bias.double()).log_softmax(0)[token])
        before = token
    return torch.stack(found)


def test_masked_steps_are_no_targets() -> None:
    model = toy(activation_penalty=0.5).double().train()
    mask = np.ones((20, 5), bool)
    mask[15:, 4] = False
    losses, _ = model.stream_losses(stream_batch(TOKENS, start=0, stop=20, mask=mask), None)
    rows = [*TOKENS[:4].tolist(), TOKENS[4, :15].tolist()]
    expected = -sum(plain_log_probs(model, row).sum() for row in rows)
    assert losses.terms["word"].sum.item() == pytest.approx(expected.item(), abs=1e-10)
    assert losses.terms["activation"].count == 95
    assert losses.total.item() == sum(term.sum.item() for term in losses.terms.values())


def test_a_segment_that_begins_forgets_what_is_carried() -> None:
    model = toy()
    begins = stream_batch(TOKENS, start=0, stop=20)
    _, carried = model.stream_losses(begins, None)
    assert model.stream_losses(begins, carried)[0].total == model.stream_losses(begins, None)[0].total
    continued = model.stream_losses(replace(begins, continues=True), carried)[0]
    assert continued.total != model.stream_losses(begins, None)[0].total


def test_loss_and_gradients_of_sentences_are_the_plain_form_and_words_and_ends_are_counted() -> None:
    model = toy().double()
    losses = model.losses(encode_words(SENTENCES, model.vocabulary))
    expected = [plain_log_probs(model, [*map(int, words), 8]) for words in SENTENCES]
    assert_same_loss_and_gradients(model, losses.total, -torch.cat(expected).sum())
    assert (losses.num_words, losses.num_sentences, losses.terms["word"].count) == (18, 4, 22)
    for score, one in zip(model.score(SENTENCES), expected, strict=True):
        np.testing.assert_allclose(score.log_probs, one.detach().numpy(), atol=1e-9)


class Single(ToyStreamLM):
    """Scores in float32."""

    scoring_dtype = torch.float32


def test_a_system_chooses_what_its_scores_are_computed_in() -> None:
    double, single = toy(), toy(Single)
    assert (double.exact().bias.dtype, single.exact().bias.dtype) == (torch.float64, torch.float32)
    differences = [
        np.abs(one.log_probs - other.log_probs).max()
        for one, other in zip(double.score(SENTENCES), single.score(SENTENCES), strict=True)
    ]
    assert 0 < max(differences) < 1e-5
    assert single.next_word_log_probs(single.start()).dtype == torch.float64
    report = audit(single, SENTENCES)
    assert report.passed, report.as_text()
    assert all(1e-5 < check.tolerance < 1e-3 for check in report.checks)
    assert not audit(single, SENTENCES, tolerances={"incremental": 0.0, "normalisation": 0.0}).passed
