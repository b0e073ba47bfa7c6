from __future__ import annotations

import pytest
import torch

from treelm.models.layers import packed_weights
from treelm.models.layers.packed_weights import LevelProduct, PackedProduct, PackedWeight


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-4), (torch.bfloat16, 0.2)])
@pytest.mark.parametrize("num_rows", [1, 20])
def test_multiplies_as_the_plain_product(dtype: torch.dtype, tolerance: float, num_rows: int) -> None:
    torch.manual_seed(0)
    weight, inputs = torch.randn(48, 33, dtype=torch.float64), torch.randn(num_rows, 33, dtype=torch.float64)
    accumulated = torch.float32 if dtype == torch.bfloat16 else dtype
    out, bias = torch.empty(num_rows, 48, dtype=accumulated), torch.randn(48, dtype=accumulated)
    product = PackedWeight(weight.to(dtype), num_rows)
    product.multiply_into(out, inputs.to(accumulated))
    assert (out.double() - inputs @ weight.T).abs().max() < tolerance
    product.multiply_into(out, inputs.to(accumulated), bias=bias)
    assert (out.double() - inputs @ weight.T - bias).abs().max() < tolerance


def test_nothing_is_packed_that_the_processor_cannot_multiply(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed_weights, "_multiplies_bf16", lambda: False)
    torch.manual_seed(0)
    weight, inputs, out = torch.randn(12, 5).bfloat16(), torch.randn(8, 5).bfloat16(), torch.empty(8, 12)
    expected = inputs @ weight.T
    LevelProduct(weight).into(out, inputs)
    assert torch.equal(out, expected.float())
    assert torch.equal(PackedWeight(weight, 8)(inputs), expected)
    assert packed_weights.packed(weight, 8) is None


@pytest.mark.parametrize("num_rows", [0, 3, 8, 64, 130, 700])
def test_other_numbers_of_rows_give_the_plain_product(num_rows: int) -> None:
    torch.manual_seed(0)
    product = PackedProduct(torch.randn(48, 32), 64)
    inputs, out, bias = torch.randn(num_rows, 32), torch.empty(num_rows, 48), torch.randn(num_rows, 48)
    product.forward.multiply_into(out, inputs, bias=bias)
    torch.testing.assert_close(out, inputs @ product.weight.T + bias, rtol=1e-4, atol=1e-4)
    back = torch.empty(num_rows, 32)
    product.backward.multiply_into(back, out)
    torch.testing.assert_close(back, out @ product.weight, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("transposes", [False, True])
@pytest.mark.parametrize("num_rows", [8, 56, 256, 520])
def test_a_product_of_levels_rounds_its_operands_and_itself_alone(num_rows: int, transposes: bool) -> None:
    torch.manual_seed(0)
    weight, inputs, bias = torch.randn(48, 32).bfloat16(), torch.randn(num_rows, 32).bfloat16(), torch.randn(48)
    product = LevelProduct(weight.T.contiguous().T if transposes else weight, bias)
    expected = inputs.float() @ weight.float().T
    out, total = torch.empty(num_rows, 48), torch.ones(num_rows, 48)
    product.into(out, inputs)
    torch.testing.assert_close(out - bias, expected, rtol=2**-8, atol=1e-4)
    product.add_to(total, inputs)
    torch.testing.assert_close(total - 1, expected, rtol=2**-8, atol=1e-4)
    torch.testing.assert_close((out - bias).bfloat16().float(), out - bias, rtol=0, atol=1e-5)
