"""The fast PRPN against the plain one: every variant, losses and gradients."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from tests.models.gradients import assert_same_loss_and_gradients
from tests.models.prpn.plain import PlainPRPN
from tests.models.prpn.worlds import prpn, tokens
from treelm.models.capabilities import Parser, has
from treelm.models.prpn.network import PRPN

VARIANTS: dict[str, dict[str, Any]] = {
    "paper": {"variant": "paper"},
    "paper with layer norm": {},
    "released": {"variant": "released"},
    "paper with blocks": {"variant": "paper", "num_blocks": 1},
    "released with blocks": {"variant": "released", "num_blocks": 2},
    "released with layer norm": {"variant": "released", "norm": "layer"},
    "released gates": {"closeness": "released", "temperature": 0.5},
    "gentle gates": {"temperature": 0.5},
    "sigmoid distances": {"distances": "sigmoid", "temperature": 2.0},
    "next distance of embeddings": {"next_distance": "embeddings", "temperature": 1.0},
    "released attention": {"attention": "released", "temperature": 1.0},
    "zero state": {"zero_state": True},
    "no look-back": {"look_back": 0},
    "one slot": {"num_slots": 1},
    "many slots": {"num_slots": 12},
    "one layer": {"num_layers": 1},
    "three layers, untied": {"num_layers": 3, "tied": False},
    "without parsing network": {"parsing_network": False},
    "without parsing network, released": {"parsing_network": False, "variant": "released"},
    "without read attention": {"read_attention": False},
    "without predict attention": {"predict_attention": False},
    "without predict attention, released": {"predict_attention": False, "variant": "released"},
    "without any": {"parsing_network": False, "read_attention": False, "predict_attention": False},
}


def has_batch_norm(name: str) -> bool:
    return prpn(**VARIANTS[name]).config.norm == "batch"


def loss_of(network: PRPN, outputs: Tensor, seed: int = 2) -> Tensor:
    """Something that every unit of every output has its own part in, and the decoder's weights too."""
    logits = outputs @ network.decoder_weight.T + network.decoder_bias
    targets = tokens(*outputs.shape[:2], seed=seed)
    picked: Tensor = logits.log_softmax(-1).gather(-1, targets[..., None])
    return -picked.sum()


@pytest.mark.parametrize(
    ("name", "training"),
    [(name, training) for name in VARIANTS for training in (True, False) if training or has_batch_norm(name)],
)
def test_equals_the_plain_form(name: str, training: bool) -> None:
    """Without dropout, only batch norm makes evaluation another thing than training."""
    network = prpn(**VARIANTS[name]).train(training)
    inputs = tokens()
    plain = PlainPRPN(network).read(inputs)
    reading = network.forward(inputs, network.init_state(inputs.shape[1]))
    if has(network, Parser):
        torch.testing.assert_close(reading.structure["distances"], plain.distances, rtol=0, atol=1e-10)
    assert_same_loss_and_gradients(network, loss_of(network, reading.outputs), loss_of(network, plain.outputs))


@pytest.mark.parametrize("config", VARIANTS.values(), ids=VARIANTS.keys())
def test_two_segments_equal_one_pass_also_in_gradients(config: dict[str, Any]) -> None:
    network = prpn(**config).eval()
    inputs = tokens(11)
    whole = network.forward(inputs, network.init_state(3))
    first = network.forward(inputs[:4], network.init_state(3))
    second = network.forward(inputs[4:], first.carried)
    assert (torch.cat([first.outputs, second.outputs]) - whole.outputs).abs().max() < 1e-10
    for name, tensor in whole.carried.items():
        assert torch.equal(tensor.isinf(), second.carried[name].isinf())
        assert torch.nan_to_num(tensor - second.carried[name]).abs().max() < 1e-10
    cut = torch.cat([first.outputs, second.outputs])
    assert_same_loss_and_gradients(network, loss_of(network, cut), loss_of(network, whole.outputs))


@pytest.mark.parametrize("config", [{}, {"variant": "released"}, {"look_back": 0}], ids=str)
def test_distances_alone_are_those_of_the_whole_network(config: dict[str, Any]) -> None:
    network = prpn(**config).eval()
    inputs, mask = tokens(9), torch.ones(9, 3, dtype=torch.bool)
    mask[5:, 1] = False
    before = network.forward(inputs[:4], network.init_state(3)).carried
    for rest in (None, mask[4:]):
        whole = network.forward(inputs[4:], before, mask=rest).structure
        alone = network.read_structure(inputs[4:], before, mask=rest)
        assert alone.keys() == whole.keys()
        assert torch.equal(alone["distances"], whole["distances"])
    assert prpn(parsing_network=False).read_structure(inputs, before) == {}


@pytest.mark.parametrize("config", [{}, {"variant": "released", "num_blocks": 1}, {"variant": "paper"}])
def test_padding_enters_nothing(config: dict[str, Any]) -> None:
    inputs, mask = tokens(7), torch.ones(7, 3, dtype=torch.bool)
    mask[4:, 1] = mask[2:, 2] = False
    results = []
    for padding in (0, 5):
        network = prpn(**config)
        padded = inputs.where(mask, padding)
        reading = network.forward(padded, network.init_state(3), mask=mask)
        results.append((reading.outputs[mask], dict(network.named_buffers())))
        plain = PlainPRPN(network).read(padded, mask=mask)
        fast, slow = ((one.outputs[mask] @ network.decoder_weight.T).log_softmax(-1) for one in (reading, plain))
        assert_same_loss_and_gradients(network, -fast[:, 0].sum(), -slow[:, 0].sum())
    torch.testing.assert_close(*results, rtol=0, atol=1e-12)


def test_long_reading_by_chunks_equals_short_ones() -> None:
    network = prpn().eval()
    inputs = tokens(300, 2)
    whole = network.forward(inputs, network.init_state(2)).outputs
    first = network.forward(inputs[:170], network.init_state(2))
    second = network.forward(inputs[170:], first.carried)
    assert (torch.cat([first.outputs, second.outputs]) - whole).abs().max() < 1e-10


def test_gates_that_are_all_closed_give_finite_gradients_in_float32() -> None:
    network = prpn(temperature=1e4).float()
    reading = network.forward(tokens(20), network.init_state(3))
    loss = reading.outputs.square().sum() * 1e6
    loss.backward()  # type: ignore[no-untyped-call]
    grads = [parameter.grad for parameter in network.parameters() if parameter.grad is not None]
    assert all(gradient.isfinite().all() for gradient in grads)
