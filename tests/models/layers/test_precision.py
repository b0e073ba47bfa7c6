"""Products in reduced precision."""

import pytest
import torch
from torch.nn import functional

from treelm.models.layers import precision
from treelm.models.layers.precision import (
    add_outer,
    add_product,
    column_sums,
    gather_into,
    like_operand,
    linear,
    matmul_precision,
    multiply_into,
    small_products,
    sum_of_rows,
)


def test_full_precision_equals_torch_with_its_gradient() -> None:
    torch.manual_seed(0)
    inputs, weight, bias = (torch.randn(*size, dtype=torch.float64).requires_grad_() for size in ((5, 3), (4, 3), (4,)))
    found, expected = linear(inputs, weight, bias), functional.linear(inputs, weight, bias)
    torch.testing.assert_close(found, expected)
    direction, operands = torch.randn(5, 4, dtype=torch.float64), [inputs, weight, bias]
    gradients = [torch.autograd.grad(out, operands, direction) for out in (found, expected)]
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other)


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


def test_the_precision_ends_with_its_context() -> None:
    inputs, weight, bias = torch.randn(5, 3), torch.randn(4, 3), torch.zeros(4)
    with matmul_precision("bf16"):
        pass
    assert torch.equal(linear(inputs, weight, bias), torch.addmm(bias, inputs, weight.T))


def test_column_sums_are_sums_over_all_other_dimensions() -> None:
    torch.manual_seed(0)
    values = torch.randn(7, 3, 5, dtype=torch.float64)
    torch.testing.assert_close(column_sums(values), values.sum((0, 1)), rtol=0, atol=1e-12)
    assert torch.equal(column_sums(values[:0]), torch.zeros(5, dtype=torch.float64))


def test_small_products_put_the_setting_back() -> None:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    try:
        with small_products(torch.device("cpu")):
            assert torch.get_float32_matmul_precision() == "highest"
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision(before)


def test_rows_that_are_rounded_once_give_what_rows_that_are_rounded_at_each_use_give() -> None:
    torch.manual_seed(0)
    left, right, weight = torch.randn(50, 24), torch.randn(50, 16), torch.randn(24, 16).bfloat16()
    for_total, for_outer = [torch.ones(50, 16) for _ in range(2)], [torch.ones(24, 16) for _ in range(2)]
    for index, (one, other) in enumerate([(left, right), (left.bfloat16(), right.bfloat16())]):
        add_product(for_total[index], one, weight)
        add_outer(for_outer[index], one, other, dtype=torch.bfloat16)
    assert torch.equal(*for_total)
    assert torch.equal(*for_outer)
    assert not torch.equal(for_total[0], torch.ones(50, 16))


def test_room_for_operands_is_the_same_tensor_in_the_same_precision() -> None:
    rows, index = torch.randn(5, 3), torch.tensor([4, 0, 4])
    assert like_operand(rows, torch.ones(2, 3)) is rows
    room = like_operand(rows, torch.ones(2, 3, dtype=torch.bfloat16))
    assert (room.dtype, room.shape) == (torch.bfloat16, rows.shape)
    for dtype in (torch.float32, torch.bfloat16):
        out = torch.empty(3, 3, dtype=dtype)
        gather_into(out, rows, index)
        assert torch.equal(out, rows[index].to(dtype))


def test_many_rounded_rows_are_added_up_in_float32() -> None:
    found = sum_of_rows(torch.ones(5000, 40, dtype=torch.bfloat16), like=torch.ones(1))
    assert found.dtype == torch.float32
    assert (found / 5000 - 1).abs().max() < 2**-8  # a sum in bfloat16 ends at 256


@pytest.mark.parametrize(
    ("dtype", "setting", "cut"),
    [
        (torch.float64, "medium", False),
        (torch.float32, "highest", False),
        (torch.float32, "medium", True),
        (torch.bfloat16, "highest", True),
    ],
)
def test_products_are_cut_only_where_a_kernel_is_compiled_for_every_shape(
    dtype: torch.dtype, setting: str, cut: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(precision, "float32_setting", lambda: setting)
    shapes = list[int]()
    monkeypatch.setattr(precision, "_multiply_into", lambda out, left, right, bias: shapes.append(len(left)))
    rows, weight = torch.zeros(219, 4), torch.zeros(4, 3, dtype=dtype)
    multiply_into(torch.zeros(219, 3), rows, weight)
    assert shapes == ([192, 24, 3] if cut else [219])
