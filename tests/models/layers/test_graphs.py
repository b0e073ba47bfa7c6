"""Graphs are replayed only where that is right, and then give what the loop gives (see ``recorded``)."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.models.layers.recorded import capture_on_cpu, recorded_graphs
from tests.models.prpn.worlds import prpn, tokens
from treelm.models.layers.graphs import GraphedFunction, cuda_graphs
from treelm.models.layers.precision import matmul_precision
from treelm.models.layers.recurrent import LSTMLayer
from treelm.models.on_lstm.kernels import ONLSTMLayer


class Capture:
    """Captures recordings, and counts."""

    def __init__(self) -> None:
        self.forms: list[tuple[torch.Size, ...]] = []
        self.num_replays = 0

    def __call__(self, function: Any, samples: tuple[Tensor, ...]) -> Any:
        self.forms.append(tuple(sample.shape for sample in samples))
        with recorded_graphs():
            captured: Any = torch.cuda.make_graphed_callables(function, samples, pool=object())

        def replay(*tensors: Tensor) -> Any:
            self.num_replays += 1
            return captured(*tensors)

        return replay


def square(x: Tensor) -> tuple[Tensor]:
    return (x * x,)


CAPTURE = Capture()


def capture_globally(function: Any, samples: tuple[Tensor, ...]) -> Any:
    return CAPTURE(function, samples)


def test_a_form_is_captured_once_and_replayed() -> None:
    capture = Capture()
    graphed = GraphedFunction(square, capture=capture, device="cpu")
    with cuda_graphs():
        for _ in range(3):
            x = torch.full((2,), 3.0, requires_grad=True)
            (y,) = graphed(x)
            y.sum().backward()
            assert x.grad is not None
            assert x.grad.tolist() == [6.0, 6.0]
        graphed(torch.ones(4, requires_grad=True))
    assert capture.forms == [(torch.Size([2]),), (torch.Size([4]),)]
    assert capture.num_replays == 4


def test_until_its_backward_pass_is_done_a_graph_is_not_replayed() -> None:
    capture = Capture()
    graphed = GraphedFunction(square, capture=capture, device="cpu")
    with cuda_graphs():
        x = torch.ones(2, requires_grad=True)
        first, second = graphed(x)[0], graphed(x)[0]
        assert capture.num_replays == 1
        (first + second).sum().backward()
        graphed(x)
    assert capture.num_replays == 2


def test_other_precision_is_another_form_and_evaluation_is_none() -> None:
    capture = Capture()
    graphed = GraphedFunction(square, capture=capture, device="cpu")
    with cuda_graphs():
        graphed(torch.ones(2, requires_grad=True))[0].sum().backward()
        with matmul_precision("bf16"):
            graphed(torch.ones(2, requires_grad=True))[0].sum().backward()
        with torch.no_grad():
            graphed(torch.ones(2))
    assert capture.num_replays == len(capture.forms) == 2


def test_without_memory_for_a_graph_the_function_is_called(caplog: pytest.LogCaptureFixture) -> None:
    def capture(function: Any, samples: tuple[Tensor, ...]) -> Any:
        raise torch.OutOfMemoryError("CUDA out of memory")

    graphed = GraphedFunction(square, capture=capture, device="cpu")
    with cuda_graphs():
        found = [graphed(torch.full((2,), 3.0, requires_grad=True))[0].tolist() for _ in range(2)]
    assert found == [[9.0, 9.0]] * 2
    assert caplog.messages == ["no memory for another CUDA graph: a loop is computed step by step from now on"]


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))])
def test_a_copy_has_graphs_of_its_own(copied: Any) -> None:
    graphed = GraphedFunction(square, capture=capture_globally, device="cpu")
    with cuda_graphs():
        graphed(torch.ones(2, requires_grad=True))
        other, num_before = copied(graphed), len(CAPTURE.forms)
        other(torch.ones(2, requires_grad=True))
    assert len(CAPTURE.forms) == num_before + 1


class Layers(nn.Module):
    """An LSTM and an ON-LSTM layer, in turns."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = LSTMLayer(3, 4), ONLSTMLayer(4, 4, 2)
        self.double()

    def forward(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        state = inputs.new_zeros(inputs.shape[1], 4), inputs.new_zeros(inputs.shape[1], 4)
        hidden, _ = self.first(inputs, state)
        outputs, _, distances = self.second(hidden, state)
        return outputs, distances


def losses_of_layers(network: nn.Module, step: int) -> Tensor:
    torch.manual_seed(step)
    outputs, distances = network(torch.randn(3 + step % 2, 2, 3, dtype=torch.float64))
    return outputs.square().sum() + distances.detach().sum()


def losses_of_prpn(network: Any, step: int) -> Tensor:
    torch.manual_seed(step)
    outputs: Tensor = network(tokens(3 + step % 2, seed=step), network.init_state(3)).outputs
    return outputs.square().sum()


def train(network: nn.Module, losses: Any) -> list[Tensor]:
    """Four updates on two forms in turns: the loss of each, and the last gradients."""
    optimizer, found = torch.optim.SGD(network.parameters(), lr=0.01), []
    for step in range(4):
        optimizer.zero_grad()
        loss = losses(network, step)
        loss.backward()
        optimizer.step()
        found.append(loss.detach())
    return [*found, *(one.grad for one in network.parameters() if one.grad is not None)]


DROPOUT = {"dropout": 0.3, "layer_dropout": 0.2, "recurrent_dropout": 0.2}
LOOPS = {
    "lstm, on-lstm": (Layers, losses_of_layers, 2),
    "prpn": (lambda: prpn(num_layers=1, **DROPOUT), losses_of_prpn, 1),
    "prpn released": (lambda: prpn(attention="released"), losses_of_prpn, 2),
    "prpn without attention": (lambda: prpn(num_layers=1, read_attention=False), losses_of_prpn, 1),
}


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_captured_loops_train_as_plain_ones(loop: str, precision: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    build, losses, num_loops = LOOPS[loop]
    # A GPU packs nothing, and recordings could not be played.
    monkeypatch.setattr("treelm.models.layers.packed_weights.packed", lambda *_: None)
    with matmul_precision(precision):
        expected = train(build(), losses)
        network = build()
        capture_on_cpu(network)
        with recorded_graphs() as recordings, cuda_graphs():
            found = train(network, losses)
    assert recordings.num_played == 4 * 2 * num_loops
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
