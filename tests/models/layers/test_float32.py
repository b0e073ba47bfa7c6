"""Fast float32 products never round their factors on a CPU: plain ones are taken where they would, and that is said."""

from __future__ import annotations

import logging

import pytest
import torch

from treelm.models.layers import precision
from treelm.models.layers.packed import PackedWeight
from treelm.models.layers.precision import Float32Products, float32_products, float32_setting, rounds_operands

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


@pytest.mark.isa
def test_what_is_found_of_a_setting_is_so() -> None:
    assert not rounds_operands("highest")
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    try:
        product = torch.full((300, 300), FINE) @ torch.eye(300)
    finally:
        torch.set_float32_matmul_precision(before)
    assert rounds_operands("medium") == bool((product != FINE).any())


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


def test_other_processors_get_what_was_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(precision, "rounds_operands", lambda setting: False)
    assert inside("medium", "cpu") == "medium"


def test_the_setting_is_put_back_after_an_error() -> None:
    before = torch.get_float32_matmul_precision()
    with pytest.raises(KeyError), float32_products("high", "cpu"):
        raise KeyError
    assert torch.get_float32_matmul_precision() == before


def test_a_setting_that_each_backend_has_by_itself_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> str:
        raise RuntimeError("mixed")  # as torch does

    monkeypatch.setattr(torch, "get_float32_matmul_precision", refuse)
    monkeypatch.setattr(torch, "set_float32_matmul_precision", lambda _: pytest.fail("set"))
    for wanted in ("highest", "medium"):
        with float32_products(wanted, "cpu"):
            assert float32_setting() is None
