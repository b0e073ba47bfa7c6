"""Products in reduced precision."""

import torch
from torch.nn import functional

from treelm.models.layers.precision import column_sums, linear, matmul_precision, small_products


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
