"""Products of matrices in which a row has the same bits in any company, on whatever processor.

Libraries choose a kernel by the shape of a product, and kernels add up in different orders: a row that is multiplied
among 7 others may differ in its last bits from the same row among 8 (docs/models/rnng-search.md has what was found).
So rows are padded to a multiple of 16, and a product is cut into blocks of those sizes that give a row the same bits as
a block of 16 does. Which these are is not looked up but tried, on this machine, for every shape of a weight.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, cached_property

import torch
from torch import Tensor

from treelm.models.layers.float32 import Float32Products, float32_products, float32_setting
from treelm.models.search.rows import BLOCK, ROUND, blocks

_SIZES = (BLOCK, 192, 128, 96, 64, 48, 32, ROUND)  # few, since oneDNN builds and keeps a kernel for every shape

_LARGEST_RESULT = 1 << 20  # numbers; a larger block is no faster


@dataclass(frozen=True)
class Affine:
    """x -> x W^T + b, with W^T (I, O)."""

    weight: Tensor
    bias: Tensor

    @classmethod
    def of(cls, weight: Tensor, bias: Tensor | None = None, *, copied: bool = True) -> Affine:
        """From a weight (O, I) as torch keeps it; no bias is a zero bias.

        A copy lies in memory as it is multiplied, which makes products of few rows faster by up to a half.
        """
        bias = weight.new_zeros(len(weight)) if bias is None else bias
        return cls(weight.detach().T.contiguous() if copied else weight.detach().T, bias.detach())

    def __call__(self, rows: Tensor, out: Tensor | None = None) -> Tensor:
        """The product for padded rows (see ``rows.rounded``)."""
        num_rows = rows.shape[0]  # ``len`` of a tensor is slow
        out = rows.new_empty(num_rows, self.bias.shape[0]) if out is None else out
        for block in _cut(num_rows, self._sizes):
            torch.addmm(self.bias, rows[block], self.weight, out=out[block])
        return out

    def add_product_(self, to: Tensor, rows: Tensor) -> None:
        """Add x W^T, without the bias, in place."""
        for block in _cut(rows.shape[0], self._sizes):
            to[block].addmm_(rows[block], self.weight)

    @cached_property
    def _sizes(self) -> tuple[int, ...]:
        """Of blocks; the precision of products stays that of the first one."""
        like = self.weight
        if like.device.type != "cpu":
            return tuple(range(BLOCK, 0, -ROUND))
        return sizes_alike(*like.shape, like.is_contiguous(), like.dtype, float32_setting())


@cache
def _cut(num_rows: int, sizes: tuple[int, ...]) -> tuple[slice, ...]:
    """Slices of the largest sizes that fit."""
    start, cut = 0, list[slice]()
    while start < num_rows:
        size = next(size for size in sizes if size <= num_rows - start)
        cut.append(slice(start, start + size))
        start += size
    return tuple(cut)


@cache
def sizes_alike(
    num_inputs: int, num_outputs: int, contiguous: bool, dtype: torch.dtype, precision: str | None
) -> tuple[int, ...]:
    """Numbers of rows, largest first, at which a product gives any row the bits that it has in a block of 16.

    Found by multiplying random rows in blocks of each size: where sums are made in another order, some of so many
    numbers differ. ``precision`` is torch's of float32 products, on which this depends.
    """
    sizes = [size for size in _SIZES if size * num_outputs <= _LARGEST_RESULT or size == ROUND]
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(sizes[0], num_inputs, generator=generator, dtype=dtype)
    weight = torch.randn(num_outputs, num_inputs, generator=generator, dtype=dtype).T
    weight, bias = weight.contiguous() if contiguous else weight, rows.new_zeros(num_outputs)

    def multiplied(size: int) -> Tensor:
        whole = len(rows) // size * size
        return torch.cat([torch.addmm(bias, rows[block], weight) for block in blocks(whole, size)])

    moved = 5  # so that rows stand at other places in their blocks
    rows = rows.roll(moved, 0)
    expected = multiplied(ROUND).roll(-moved, 0)
    rows = rows.roll(-moved, 0)
    alike = [size for size in sizes[:-1] if torch.equal(found := multiplied(size), expected[: len(found)])]
    return (*alike, ROUND)


_LEAST_PRODUCT = 256  # of the sizes of a weight


def widened(parameter: Tensor, size: int, padding: float = 0.0, *, multiple: int = 1) -> Tensor:
    """A weight or bias with rows of padding, so that a row of a product does not depend on how many others there are.

    Torch hands products of at most 4096 multiplications to another library, whose sums round differently; the least
    number of rows is 16 (see ``rows.rounded``). So tiny models need it, and few outputs that fill no whole cache line.
    """
    wanted = max(len(parameter), _LEAST_PRODUCT // size + 1)
    missing = wanted + -wanted % multiple - len(parameter)
    if missing == 0:
        return parameter
    return torch.cat([parameter, parameter.new_full((missing, *parameter.shape[1:]), padding)])


@contextmanager
def arithmetic(precision: Float32Products, device: torch.device) -> Iterator[None]:
    """How search computes, for the block only: float32 products as wanted, and on one thread.

    With several threads, a library divides a product or a sum among them by its shape, and with it the order of sums.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with float32_products(precision, device):
            yield
    finally:
        torch.set_num_threads(threads)
