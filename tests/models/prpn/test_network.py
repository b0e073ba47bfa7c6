"""The fast PRPN against the plain one: every variant, losses and gradients."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from tests.models.prpn.plain import PlainPRPN, Row
from tests.models.prpn.worlds import VOCABULARY_SIZE, prpn, tokens
from treelm.models.capabilities import Parser, has
from treelm.models.prpn.network import PRPN

VARIANTS: dict[str, dict[str, Any]] = {
    "paper": {"variant": "paper"},
    "paper with layer norm": {},
    "released": {"variant": "released"},
    "paper attention": {"attention": "paper"},
    "paper with blocks": {"variant": "paper", "num_blocks": 1},
    "released with blocks": {"variant": "released", "num_blocks": 2},
    "released with layer norm": {"variant": "released", "norm": "layer"},
    "soft gates": {"closeness": "soft", "temperature": 0.3},
    "soft gates, released": {"variant": "released", "closeness": "soft", "temperature": 0.3},
    "soft and sharp gates": {"closeness": "soft", "temperature": 100.0},
    "released gates": {"closeness": "released", "temperature": 0.5},
    "gentle gates": {"temperature": 0.5},
    "sigmoid distances": {"distances": "sigmoid", "temperature": 2.0},
    "next distance of embeddings": {"next_distance": "embeddings", "temperature": 1.0},
    "released attention": {"attention": "released", "temperature": 1.0},
    "paper attention with zero state": {"attention": "paper", "zero_state": True},
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
every_variant = pytest.mark.parametrize("config", VARIANTS.values(), ids=VARIANTS.keys())


def has_batch_norm(name: str) -> bool:
    return prpn(**VARIANTS[name]).config.norm == "batch"


def loss_of(network: PRPN, outputs: Tensor, seed: int = 2) -> Tensor:
    """Something that every unit of every output has its own part in, and the decoder's weights too."""
    logits = outputs @ network.decoder_weight.T + network.decoder_bias
    targets = tokens(*outputs.shape[:2], seed=seed)
    picked: Tensor = logits.log_softmax(-1).gather(-1, targets[..., None])
    return -picked.sum()


def gradients(network: PRPN, loss: Tensor) -> dict[str, Tensor]:
    network.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    missing = [name for name, parameter in network.named_parameters() if parameter.grad is None]
    assert not missing
    return {
        name: parameter.grad.clone() for name, parameter in network.named_parameters() if parameter.grad is not None
    }


def assert_same(one: dict[str, Tensor], other: dict[str, Tensor], tolerance: float = 1e-10) -> None:
    for name, gradient in one.items():
        assert (gradient - other[name]).abs().max() < tolerance, name


@pytest.mark.parametrize(
    ("name", "training"),
    [(name, training) for name in VARIANTS for training in (True, False) if training or has_batch_norm(name)],
)
def test_equals_the_plain_form(name: str, training: bool) -> None:
    """Without dropout, only batch norm makes evaluation another thing than training."""
    network = prpn(**VARIANTS[name]).train(training)
    inputs = tokens()
    plain = PlainPRPN(network).read(inputs)
    slow = loss_of(network, plain.outputs)
    expected = gradients(network, slow)
    reading = network.forward(inputs, network.init_state(inputs.shape[1]))
    fast = loss_of(network, reading.outputs)
    assert abs(fast.item() - slow.item()) < 1e-10
    if has(network, Parser):
        assert (reading.structure["distances"] - plain.distances).abs().max() < 1e-10
    assert_same(gradients(network, fast), expected)


@every_variant
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
    expected = gradients(network, loss_of(network, whole.outputs))
    cut = gradients(network, loss_of(network, torch.cat([first.outputs, second.outputs])))
    assert_same(cut, expected)


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


def test_the_plain_form_reads_segments_too() -> None:
    network = prpn().eval()
    inputs, rows = tokens(11), [Row() for _ in range(3)]
    plain = PlainPRPN(network)
    segments = [plain.read(inputs[:4], rows).outputs, plain.read(inputs[4:], rows).outputs]
    assert (torch.cat(segments) - network.forward(inputs, network.init_state(3)).outputs).abs().max() < 1e-10


@every_variant
def test_token_by_token_equals_all_at_once(config: dict[str, Any]) -> None:
    network = prpn(**config).eval()
    inputs = tokens(8)
    whole = network.forward(inputs, network.init_state(3)).outputs
    carried, steps = network.init_state(3), []
    for step in inputs:
        reading = network.forward(step[None], carried)
        carried = reading.carried
        steps.append(reading.outputs)
    assert (torch.cat(steps) - whole).abs().max() < 1e-10


@pytest.mark.parametrize("config", [{}, {"variant": "released", "num_blocks": 1}, {"variant": "paper"}])
def test_padding_enters_nothing(config: dict[str, Any]) -> None:
    inputs, mask = tokens(7), torch.ones(7, 3, dtype=torch.bool)
    mask[4:, 1] = mask[2:, 2] = False
    results = []
    for padding in (0, 5):
        network = prpn(**config)
        padded = inputs.where(mask, padding)
        reading = network.forward(padded, network.init_state(3), mask=mask)
        loss = -(reading.outputs[mask] @ network.decoder_weight.T).log_softmax(-1)[:, 0].sum()
        network.output_bias.grad = None
        loss.backward()  # type: ignore[no-untyped-call]
        grads = {name: value.grad for name, value in network.named_parameters() if value.grad is not None}
        buffers = {name: buffer.clone() for name, buffer in network.named_buffers()}
        results.append((reading.outputs[mask], grads, buffers))
        plain = PlainPRPN(prpn(**config)).read(padded, mask=mask)
        assert (plain.outputs[mask] - reading.outputs[mask]).abs().max() < 1e-10
    assert (results[0][0] - results[1][0]).abs().max() < 1e-12
    assert_same(results[0][1], results[1][1], 1e-12)
    assert_same(results[0][2], results[1][2], 1e-12)


def test_the_first_step_attends_to_nothing_but_in_the_released_variant_to_a_state_of_zeros() -> None:
    network = prpn()
    assert (~network.init_state(2)["distances"].isfinite()).all()
    slots = network._slots(torch.cat([network.init_state(2)["distances"].T, torch.ones(3, 2).double()]), None)
    assert slots.log_weights[0].isinf().all()
    assert slots.log_weights[1].isfinite().sum() == 2  # one state a row
    released = prpn(variant="released")
    slots = released._slots(torch.cat([released.init_state(2)["distances"].T, torch.ones(3, 2).double()]), None)
    assert slots.log_weights[0].isfinite().sum() == 2


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


def test_word_gradients_reach_the_parser() -> None:
    network = prpn(temperature=1.0)
    loss_of(network, network.forward(tokens(), network.init_state(3)).outputs).backward()  # type: ignore[no-untyped-call]
    assert network.parser is not None
    assert network.parser.weight.grad is not None
    assert network.parser.weight.grad.abs().sum() > 0


assert VOCABULARY_SIZE == 8
