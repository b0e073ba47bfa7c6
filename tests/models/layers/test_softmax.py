"""The chunked softmax against torch's cross-entropy."""

import pytest
import torch
from torch.nn import functional

from treelm.models.layers import softmax
from treelm.models.layers.precision import matmul_precision
from treelm.models.layers.softmax import summed_cross_entropy


@pytest.fixture
def operands() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    hidden, weight, bias = (torch.randn(*size, dtype=torch.float64) for size in ((11, 4), (7, 4), (7,)))
    return hidden.requires_grad_(), weight.requires_grad_(), bias.requires_grad_(), torch.randint(7, (11,))


@pytest.mark.parametrize("chunk", [1, 4, 11, 512])
@pytest.mark.parametrize("whole", [True, False])
def test_loss_and_gradient_equal_torch_for_any_chunk(
    operands: tuple[torch.Tensor, ...], chunk: int, whole: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(softmax, "WHOLE_ROWS" if whole else "CHUNK_ROWS", chunk)
    monkeypatch.setattr(softmax, "compiles_shapes", lambda dtype, device: not whole)
    hidden, weight, bias, targets = operands
    found = summed_cross_entropy(hidden, weight, bias, targets)
    expected = functional.cross_entropy(functional.linear(hidden, weight, bias), targets, reduction="sum")
    torch.testing.assert_close(found, expected, rtol=1e-13, atol=0)
    parameters = [hidden, weight, bias]
    pairs = zip(torch.autograd.grad(3 * found, parameters), torch.autograd.grad(3 * expected, parameters), strict=True)
    for one, other in pairs:
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-14)


def test_large_logits_do_not_overflow() -> None:
    hidden = torch.full((2, 1), 300.0, requires_grad=True)
    loss = summed_cross_entropy(hidden, torch.tensor([[1.0], [-1.0]]), torch.zeros(2), torch.tensor([0, 0]))
    assert loss == 0


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize(("num_rows", "num_words"), [(5, 7), (64, 16), (150, 37)])
def test_bf16_rounds_products_and_gradients_of_logits_alone(
    num_rows: int, num_words: int, whole: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(softmax, "WHOLE_ROWS" if whole else "CHUNK_ROWS", 64)
    torch.manual_seed(0)
    hidden, weight, bias = (torch.randn(*size) for size in ((num_rows, 4), (num_words, 4), (num_words,)))
    parameters, targets = (
        [one.requires_grad_() for one in (hidden, weight, bias)],
        torch.randint(num_words, (num_rows,)),
    )
    with matmul_precision("bf16"):
        found = summed_cross_entropy(*parameters, targets, whole=whole)
    rounded = hidden.detach().bfloat16(), weight.detach().bfloat16()
    logits = (rounded[0].float() @ rounded[1].float().T).bfloat16().float().requires_grad_()
    expected = functional.cross_entropy(logits + bias, targets, reduction="sum")  # softmax and bias in float32
    torch.testing.assert_close(found.float(), expected, rtol=1e-4, atol=0)
    d_logits, d_bias = torch.autograd.grad(expected, (logits, bias))
    wanted = (d_logits @ rounded[1].float(), d_logits.T @ rounded[0].float(), d_bias)
    for one, other in zip(torch.autograd.grad(found, parameters), wanted, strict=True):
        assert one.dtype == torch.float32
        assert one.shape == other.shape
        assert (one - other).norm() < 0.01 * other.norm()
