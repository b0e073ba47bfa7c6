"""The LSTM and AWD-LSTM against their plain form; that every regulariser acts, in training only."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.models.gradients import assert_same_loss_and_gradients
from tests.models.lstm.plain import Masks, plain_losses
from tests.models.rnng.worlds import Tokens
from tests.models.stream_toys import AWD, stream_batch
from tests.models.weights import stirred
from treelm.corpora.encoding import encode_words
from treelm.models.layers import dropout as dropout_module
from treelm.models.lstm.network import LSTM, LSTMConfig

SIZES = {"embedding_size": 5, "hidden_size": 7, "num_layers": 3}
SENTENCES = [list("1234567"), list("20"), list("7"), list("55512034")]
ROWS = [[int(word) for word in words] + [8] for words in SENTENCES]


def lstm(seed: int = 0, **config: Any) -> LSTM:
    torch.manual_seed(seed)
    return stirred(LSTM(LSTMConfig(**{**SIZES, **config}), vocabulary=Tokens(8)).double(), 0.2, times=2)


def fresh(seed: int, **config: Any) -> LSTM:
    """An LSTM as it is drawn."""
    torch.manual_seed(seed)
    return LSTM(LSTMConfig(**{**SIZES, **config}), vocabulary=Tokens(8))


@contextmanager
def recorded_masks(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Tensor]]:
    """What every dropout multiplies by, in the order of drawing."""
    masks: list[Tensor] = []
    draw = dropout_module.keep_units

    def keep_units(
        shape: tuple[int, ...], probability: float, device: torch.device, *, shared: bool = False
    ) -> tuple[Tensor, float]:
        kept, factor = draw(shape, probability, device, shared=shared)
        masks.append(kept.double() * factor)
        return kept, factor

    with monkeypatch.context() as patch:
        patch.setattr(dropout_module, "keep_units", keep_units)
        yield masks


@pytest.mark.parametrize("config", [{}, {"tied": False}, {"num_layers": 1}])
def test_loss_and_gradients_of_sentences_equal_the_plain_form(config: dict[str, Any]) -> None:
    network = lstm(**config)
    fast = network.losses(encode_words(SENTENCES, network.vocabulary)).total
    num_layers = network.config.num_layers
    plain, *_ = plain_losses(dict(network.named_parameters()), ROWS, num_layers=num_layers, end=8)
    assert_same_loss_and_gradients(network, fast, plain)


def test_loss_and_gradients_of_a_stream_with_all_regularisers_equal_the_plain_form(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    network = lstm(**AWD)
    tokens = np.random.default_rng(1).integers(0, 9, (4, 12))
    with recorded_masks(monkeypatch) as drawn:
        losses, carried = network.stream_losses(stream_batch(tokens, start=0, stop=12), None)
    masks = Masks(drawn[0], drawn[1], drawn[2::2], drawn[3::2])
    assert [tuple(one.shape) for one in drawn[2::2]] == [(28, 7), (28, 7), (20, 5)]
    nats, activation, difference, last = plain_losses(
        dict(network.named_parameters()), tokens.tolist(), num_layers=3, end=8, masks=masks, alpha=2.0, beta=1.0
    )
    assert_same_loss_and_gradients(network, losses.total, nats + 48 * (activation + difference))
    assert losses.terms["activation_penalty"].sum.item() == pytest.approx(48 * activation.item())
    torch.testing.assert_close(carried["hidden.2"], torch.stack([row[2] for row in last]).detach())


def test_regularisers_of_padded_sentences_leave_padding_out(monkeypatch: pytest.MonkeyPatch) -> None:
    network = lstm(**AWD)
    with recorded_masks(monkeypatch) as drawn:
        losses = network.losses(encode_words(SENTENCES, network.vocabulary))
    masks = Masks(drawn[0], drawn[1], drawn[2::2], drawn[3::2])
    nats, activation, difference, _ = plain_losses(
        dict(network.named_parameters()), ROWS, num_layers=3, end=8, masks=masks, alpha=2.0, beta=1.0
    )
    assert_same_loss_and_gradients(network, losses.total, nats + 22 * (activation + difference))


@pytest.mark.isa
@pytest.mark.parametrize("num_rows", [4, 5, 20])
@pytest.mark.parametrize(("dtype", "rounding"), [(torch.float64, 1e-13), (torch.float32, 1e-5)])
def test_two_segments_are_one_pass_but_for_rounding(num_rows: int, dtype: torch.dtype, rounding: float) -> None:
    # Products of other numbers of rows may take other kernels, which add up in another order.
    network = lstm(**AWD).eval().to(dtype)
    inputs = torch.from_numpy(np.random.default_rng(0).integers(0, 9, (20, num_rows)))
    whole = network.forward(inputs, network.init_state(num_rows))
    first = network.forward(inputs[:7], network.init_state(num_rows))
    second = network.forward(inputs[7:], first.carried)
    together = {"outputs": torch.cat([first.outputs, second.outputs]), **second.carried}
    torch.testing.assert_close(together, {"outputs": whole.outputs, **whole.carried}, rtol=0, atol=rounding)


def test_dropped_recurrent_weights_have_no_gradient_and_new_masks_every_time() -> None:
    network = lstm(weight_dropout=0.5).train()
    batch = stream_batch(np.random.default_rng(1).integers(0, 9, (4, 12)), start=0, stop=12)
    losses = [network.stream_losses(batch, None)[0].total for _ in range(2)]
    assert losses[0] != losses[1]
    losses[0].backward()
    gradient = network.stack.layers[0].weights.weight_hidden.grad
    assert 0.3 < (gradient == 0).double().mean() < 0.7


def test_twenty_starts_are_nearly_uniform_and_wide_embeddings_tell_contexts_apart() -> None:
    for seed in range(20):
        spreads = []
        for size in (0.1, 0.6):
            scores = fresh(seed, embedding_range=size).score(SENTENCES)
            nats = -sum(score.log_probs.sum() for score in scores) / sum(len(row) for row in ROWS)
            assert abs(nats - np.log(9)) < 0.1
            ends = [score.log_probs[-1] for score in scores]  # of the same token after four texts
            spreads.append(np.std(ends))
        assert spreads[1] > 2 * spreads[0]
