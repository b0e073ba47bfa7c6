"""Graphs are replayed only where that is right. Captured is what a test puts in their place."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from treelm.models.layers import graphs
from treelm.models.layers.graphs import GraphedFunction, cuda_graphs
from treelm.models.layers.lstm_layer import LSTMLayer
from treelm.models.layers.precision import matmul_precision


class Capture:
    """Stands in for ``torch.cuda.make_graphed_callables``: replays are counted, and write to the same memory."""

    def __init__(self) -> None:
        self.forms: list[tuple[torch.Size, ...]] = []
        self.num_replays = 0

    def __call__(self, function: Any, samples: tuple[Tensor, ...]) -> Any:
        self.forms.append(tuple(sample.shape for sample in samples))

        def replay(*tensors: Tensor) -> Any:
            self.num_replays += 1
            return function(*tensors)

        return replay


def square(x: Tensor) -> tuple[Tensor]:
    return (x * x,)


def test_without_the_context_nothing_is_captured() -> None:
    capture = Capture()
    GraphedFunction(square, capture=capture, device="cpu")(torch.ones(2, requires_grad=True))
    assert capture.forms == []


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


def test_none_is_no_tensor_and_other_arguments_are_not_captured() -> None:
    def scaled(x: Tensor, factor: Any, y: Tensor) -> tuple[Tensor]:
        return (x * y if factor is None else x * y * factor,)

    capture = Capture()
    graphed = GraphedFunction(scaled, capture=capture, device="cpu")
    x, y = torch.ones(2, requires_grad=True), torch.full((2,), 3.0)
    with cuda_graphs():
        assert graphed(x, None, y)[0].tolist() == [3.0, 3.0]
        assert graphed(x, 2, y)[0].tolist() == [6.0, 6.0]
    assert len(capture.forms) == 1


def test_beyond_the_most_forms_the_function_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graphs, "MOST_FORMS", 1)
    capture = Capture()
    graphed = GraphedFunction(square, capture=capture, device="cpu")
    with cuda_graphs():
        for size in (2, 3):
            graphed(torch.ones(size, requires_grad=True))[0].sum().backward()
    assert len(capture.forms) == 1


def test_a_layer_on_a_cpu_is_never_captured() -> None:
    layer = LSTMLayer(3, 4)
    state = torch.zeros(2, 4), torch.zeros(2, 4)
    with cuda_graphs():
        outputs, _ = layer(torch.ones(5, 2, 3), state)
    assert torch.equal(outputs, layer(torch.ones(5, 2, 3), state)[0])
