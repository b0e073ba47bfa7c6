"""What every stream model gets from ``begin`` and ``read``."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.models.gradients import assert_same_loss_and_gradients
from tests.models.stream_toys import ToyParsingStreamLM, ToyStreamLM, toy
from treelm.corpora.encoding import encode_words
from treelm.corpora.stream_batches import StreamBatch
from treelm.evaluation.audit import audit
from treelm.trees.distances import tree_from_distances

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


@pytest.mark.parametrize("cut", [1, 7, 19])
def test_two_segments_are_one_pass_bit_for_bit(cut: int) -> None:
    model = toy()
    whole, carried = model.stream_losses(stream_batch(TOKENS, start=0, stop=20), None)
    first, between = model.stream_losses(stream_batch(TOKENS, start=0, stop=cut), None)
    second, after = model.stream_losses(stream_batch(TOKENS, start=cut, stop=20), between)
    assert torch.equal(carried["hidden"], after["hidden"])
    assert not between["hidden"].requires_grad
    outputs = model.forward(torch.from_numpy(TOKENS.T), model.init_state(5)).outputs
    inside = model.forward(torch.from_numpy(TOKENS.T[:cut]), model.init_state(5))
    beyond = model.forward(torch.from_numpy(TOKENS.T[cut:]), inside.carried)
    assert torch.equal(outputs, torch.cat([inside.outputs, beyond.outputs]))
    assert (first.total + second.total).item() == pytest.approx(whole.total.item(), rel=1e-6)


def test_stream_losses_are_those_of_the_plain_form() -> None:
    model = toy().double()
    losses, _ = model.stream_losses(stream_batch(TOKENS, start=0, stop=20), None)
    expected = -sum(plain_log_probs(model, row).sum() for row in TOKENS.tolist())
    assert losses.total.item() == pytest.approx(expected.item(), abs=1e-10)
    assert (losses.terms["word"].count, losses.num_words, losses.num_sentences) == (100, 4, 1)


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


def test_words_of_several_tokens_are_words() -> None:
    model = toy(num_unfinished=2)  # tokens 0 and 1 go on: "0", "1" continue
    state = model.start()
    for token in (0, 1, 5, 7):
        state = model.extend_tokens(state, [token])
    assert [len(words) for words in state.words] == [2]


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


def test_trees_are_built_from_the_distances_of_the_steps() -> None:
    model = toy(ToyParsingStreamLM)
    hidden = model.exact().forward(
        torch.tensor([[8], *([int(word)] for word in SENTENCES[0])]), model.exact().init_state(1)
    )
    expected = hidden.outputs[1:, 0, 0].numpy()
    np.testing.assert_allclose(model.distances(SENTENCES)[0], expected, atol=1e-9)
    assert model.parse(SENTENCES)[0] == tree_from_distances(SENTENCES[0], expected)
    model.tree_builder = "biased"
    assert model.parse(SENTENCES)[0] == tree_from_distances(SENTENCES[0], expected, builder="biased")
