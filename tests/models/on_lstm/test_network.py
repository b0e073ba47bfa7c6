"""The ON-LSTM language model against its plain form; its distances and trees; that every regulariser acts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from tests.models.gradients import assert_same_loss_and_gradients
from tests.models.lstm.plain import Masks
from tests.models.lstm.test_network import recorded_masks
from tests.models.on_lstm.plain import plain_losses
from tests.models.rnng.worlds import Tokens
from tests.models.stream_toys import AWD, stream_batch
from tests.models.weights import stirred
from treelm.corpora.encoding import encode_words
from treelm.models.on_lstm.network import ONLSTM, ONLSTMConfig

SIZES = {"embedding_size": 4, "hidden_size": 6, "num_layers": 3, "chunk_size": 2}
REGULARISERS = {**AWD, "weight_dropout": 0.45}
SENTENCES = [list("1234567"), list("20"), list("7"), list("55512034")]
ROWS = [[int(word) for word in words] + [8] for words in SENTENCES]
TOKENS = np.random.default_rng(1).integers(0, 9, (4, 9))


def on_lstm(**config: Any) -> ONLSTM:
    torch.manual_seed(0)
    return stirred(ONLSTM(ONLSTMConfig(**{**SIZES, **config}), vocabulary=Tokens(8)).double(), 0.2, times=2)


def plain(network: ONLSTM, rows: list[list[int]], masks: Masks | None = None) -> Any:
    return plain_losses(
        dict(network.named_parameters()),
        rows,
        num_layers=network.config.num_layers,
        chunk_size=network.config.chunk_size,
        end=8,
        masks=masks,
    )


@pytest.mark.parametrize("config", [{}, {"num_layers": 1, "distance_layer": 1}, {"chunk_size": 1}])
def test_loss_and_gradients_of_sentences_equal_the_plain_form(config: dict[str, Any]) -> None:
    network = on_lstm(**config)
    fast = network.losses(encode_words(SENTENCES, network.vocabulary)).total
    assert_same_loss_and_gradients(network, fast, plain(network, ROWS).nats)


@pytest.mark.parametrize("scaling", ["training", "evaluation"])
def test_loss_and_gradients_of_a_stream_with_all_regularisers_equal_the_plain_form(
    scaling: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = on_lstm(**REGULARISERS, weight_scaling=scaling).train()
    with recorded_masks(monkeypatch) as drawn:
        losses, _ = network.stream_losses(stream_batch(TOKENS, start=0, stop=9), None)
    assert [tuple(one.shape) for one in drawn[2::2]] == [(30, 6), (30, 6), (20, 4)]  # rows of master gates too
    if scaling == "evaluation":
        drawn[2::2] = [mask * (1 - 0.45) for mask in drawn[2::2]]
        for mask in drawn[2::2]:  # weights that stay are taken as they are, but for the rounding of probabilities
            torch.testing.assert_close(mask, mask.round(), rtol=0, atol=1e-4)
    expected = plain(network, TOKENS.tolist(), Masks(drawn[0], drawn[1], drawn[2::2], drawn[3::2]))
    assert_same_loss_and_gradients(
        network, losses.total, expected.nats + 36 * (2 * expected.activation + expected.difference)
    )


def test_recurrent_weights_can_be_scaled_in_evaluation_instead_of_training() -> None:
    network = on_lstm(weight_dropout=0.45, weight_scaling="evaluation").eval()
    smaller = on_lstm()
    with torch.no_grad():
        for layer in smaller.layers:
            layer.weights.weight_hidden *= 1 - 0.45
    batch = encode_words(SENTENCES, network.vocabulary)
    torch.testing.assert_close(network.losses(batch).total, smaller.losses(batch).total, rtol=0, atol=1e-10)


def test_released_initial_weights_have_the_scale_of_what_they_multiply() -> None:
    wide = {"embedding_size": 6, "hidden_size": 96, "num_layers": 2, "chunk_size": 3}
    for seed in range(20):
        torch.manual_seed(seed)
        network = ONLSTM(ONLSTMConfig(**wide, initialisation="released"), vocabulary=Tokens(8))
        for layer, (input_size, size) in zip(network.layers, [(6, 96), (96, 6)], strict=True):
            weights, squares = layer.weights, []
            for weight, fan_in in ((weights.weight_input, input_size), (weights.weight_hidden, size)):
                assert weight.abs().max() <= fan_in**-0.5
                squares.append(1 / (3 * fan_in))
                assert weight.square().mean().item() == pytest.approx(squares[-1], rel=0.25)
            assert weights.bias.square().mean().item() == pytest.approx(sum(squares), rel=0.6)


@pytest.mark.parametrize("layer", [1, 2, 3])
def test_distances_are_those_of_the_chosen_layer_of_the_plain_form(layer: int) -> None:
    network = on_lstm(distance_layer=layer)
    expected = plain(network, ROWS).distances
    for words, steps, found in zip(SENTENCES, expected, network.distances(SENTENCES), strict=True):
        np.testing.assert_allclose(found, [step[layer - 1] for step in steps[1:]], atol=1e-8)
        assert len(found) == len(words)
