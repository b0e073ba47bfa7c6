"""Products in reduced precision; fast float32 products, which never round their factors on a CPU; exact copies."""

from __future__ import annotations

import logging

import pytest
import torch
from torch import nn

from treelm.models.layers import precision
from treelm.models.layers.packed_weights import PackedWeight
from treelm.models.layers.precision import (
    ExactCopy,
    Float32Products,
    float32_products,
    linear,
    lstm_states,
    matmul_precision,
)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_an_lstm_is_exact_on_a_processor_that_cannot_compute_it_in_bf16(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    lstm, inputs = torch.nn.LSTM(3, 4, batch_first=True).to(dtype), torch.randn(2, 5, 3, dtype=dtype)
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: False)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = lstm_states(lstm, inputs)
    torch.testing.assert_close(found, lstm(inputs)[0], rtol=0, atol=0)


def test_bf16_rounds_operands_and_keeps_the_type() -> None:
    torch.manual_seed(0)
    inputs, weight, bias = torch.randn(50, 30), torch.randn(40, 30).requires_grad_(), torch.zeros(40)
    exact = linear(inputs, weight, bias)
    with matmul_precision("bf16"):
        rounded = linear(inputs, weight, bias)
    assert rounded.dtype == torch.float32
    error = relative_error(rounded, exact)
    assert 1e-4 < error < 1e-2
    gradient, expected = (torch.autograd.grad(out.square().sum(), weight)[0] for out in (rounded, exact))
    assert gradient.dtype == torch.float32
    assert 1e-4 < relative_error(gradient, expected) < 2e-2


def relative_error(found: torch.Tensor, expected: torch.Tensor) -> float:
    return float(((found - expected).norm() / expected.norm()).detach())


FINE = 1 + 2**-20  # neither bfloat16 nor TF32 has it


def inside(wanted: Float32Products, device: str) -> str:
    with float32_products(wanted, device):
        return torch.get_float32_matmul_precision()


@pytest.mark.isa
@pytest.mark.parametrize("size", [16, 64, 300])
@pytest.mark.parametrize("wanted", ["highest", "high", "medium"])
def test_factors_keep_all_their_bits(wanted: Float32Products, size: int) -> None:
    matrix, packed = torch.full((size, size), FINE), PackedWeight(torch.eye(size), size)
    with float32_products(wanted, "cpu"):
        out = torch.empty(size, size)
        packed.multiply_into(out, matrix)
        assert torch.equal(out, matrix)
        assert torch.equal(matrix @ torch.eye(size), matrix)
        assert torch.equal(torch.addmm(torch.zeros(size), torch.eye(size), matrix), matrix)


def test_a_processor_that_rounds_gets_plain_products_and_says_so_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(precision, "rounds_operands", lambda setting: setting == "medium")
    precision._say_once.cache_clear()
    with caplog.at_level(logging.WARNING):
        assert inside("medium", "cpu") == inside("medium", "cpu") == "highest"
    assert len(caplog.messages) == 1
    assert "round to bfloat16" in caplog.text
    assert inside("high", "cpu") == "high"
    assert inside("medium", "cuda") == "medium"  # TF32, as documented


class Scorer(nn.Linear):
    def __init__(self) -> None:
        super().__init__(2, 1)
        self._exact: ExactCopy[Scorer] = ExactCopy()

    def score(self) -> float:
        return self._exact.of(self)(torch.ones(2, dtype=torch.float64)).item()

    def expected(self) -> float:
        return (self.weight.double().sum() + self.bias.double().sum()).item()


def update(scorer: Scorer, optimizer: torch.optim.Optimizer) -> None:
    optimizer.zero_grad()
    scorer(torch.ones(2)).sum().backward()
    optimizer.step()


@pytest.mark.parametrize("fused", [True, False])
def test_scores_between_updates_are_those_of_the_weights_of_the_moment(fused: bool) -> None:
    scorer = Scorer()
    optimizer = torch.optim.Adam(scorer.parameters(), lr=0.1, fused=fused)
    for _ in range(3):
        scorer.train()
        update(scorer, optimizer)
        scorer.eval()
        assert scorer.score() == pytest.approx(scorer.expected(), abs=1e-12)
