"""Whatever kernels the processor has: a row of a product has the same bits among any others."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from treelm.models.search.batch_invariant import Affine, arithmetic, rounded, sizes_alike

SHAPES = [(8, 33), (30, 120), (64, 64), (160, 640), (256, 1024), (512, 256), (160, 5543)]  # (I, O)


@pytest.mark.isa
@pytest.mark.parametrize("copied", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_row_has_the_same_bits_among_any_others(shape: tuple[int, int], dtype: torch.dtype, copied: bool) -> None:
    num_inputs, num_outputs = shape
    rows = torch.randn(900, num_inputs, dtype=dtype)
    weight, bias = torch.randn(num_outputs, num_inputs, dtype=dtype), torch.randn(num_outputs, dtype=dtype)
    affine = Affine.of(weight, bias, copied=copied)
    with arithmetic("highest", torch.device("cpu")):
        whole = affine(rows[: rounded(880)])
        for number in (1, 7, 20, 40, 64, 100, 300):
            index = torch.randperm(880)[: rounded(number)]
            assert torch.equal(affine(rows[index]), whole[index])
            added = bias.expand(len(index), -1).clone()
            affine.add_product_(added, rows[index])
            assert torch.equal(added, whole[index])
    torch.testing.assert_close(whole, rows[:880] @ weight.T + bias, atol=1e-3, rtol=1e-4)


def test_sizes_whose_sums_are_made_otherwise_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    def odd(bias: Tensor, rows: Tensor, weight: Tensor) -> Tensor:
        product = (rows[:, None] * weight.T).sum(2) + bias  # row by row
        if len(rows) == 48:
            product[11] += 1e-9  # one row of a block, as an edge of a kernel's tiles
        if len(rows) == 128:
            product[:, -1] += 1e-9
        return product

    monkeypatch.setattr(torch, "addmm", odd)
    assert sizes_alike.__wrapped__(8, 40, True, torch.float64, "highest") == (256, 192, 96, 64, 32, 16)


def test_search_computes_on_one_thread_and_puts_their_number_back() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with arithmetic("highest", torch.device("cpu")):
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
