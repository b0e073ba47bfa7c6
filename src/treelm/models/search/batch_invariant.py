"""Matrix products of the search that are batch-invariant: a row has the same bits among any other rows.

Libraries choose a kernel by the shape of a product, and kernels add up in different orders, so a row that is multiplied
among 7 others may differ in its last bits from the same row among 8 (measurements: docs/research/rnng-search.md).
Therefore rows are padded to a multiple of 16, and a product is cut into blocks of such sizes that give a row the same
bits as a block of 16. Which sizes do is tried on the machine at hand, for every shape of a weight (``sizes_alike``).

In few calls, as on a GPU (``devices.few_calls``), a product is one call, which is not batch-invariant.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np
import torch
from torch import Tensor

from treelm.models.layers.devices import few_calls
from treelm.models.layers.precision import Float32Products, float32_products, float32_setting, one_thread
from treelm.models.search.rows import Ints

BLOCK = 256  # rows of one matrix product; with what is done to them before and after, they fit into a core's cache
ROUND = 16  # rows of the smallest product


def rounded(num_rows: int) -> int:
    """``num_rows`` rounded up to a multiple of 16, as ``Affine`` expects.

    >>> rounded(1), rounded(16), rounded(17)
    (16, 16, 32)
    """
    return num_rows + -num_rows % ROUND


@cache
def blocks(num_rows: int, size: int = BLOCK) -> tuple[slice, ...]:
    """Slices of at most ``size`` rows each. Larger products are no faster, and take more memory."""
    return tuple(slice(start, min(start + size, num_rows)) for start in range(0, num_rows, size))


def padded(index: Ints) -> Ints:
    """An index of rows, lengthened to a round number by repeating row 0."""
    missing = rounded(len(index)) - len(index)
    return np.concatenate([index, np.zeros(missing, np.int64)]) if missing else index


def padded_rows(rows: Tensor) -> Tensor:
    """A matrix, lengthened to a round number of rows by zeros."""
    missing = rounded(rows.shape[0]) - rows.shape[0]
    return torch.cat([rows, rows.new_zeros(missing, rows.shape[1])]) if missing else rows


_SIZES = (BLOCK, 192, 128, 96, 64, 48, 32, ROUND)  # few, since oneDNN builds and keeps a kernel for every shape

_LARGEST_RESULT = 1 << 20  # numbers; a larger block is no faster


@dataclass(frozen=True)
class Affine:
    """x -> x W^T + b, with W^T (I, O)."""

    weight: Tensor
    bias: Tensor

    @classmethod
    def of(cls, weight: Tensor, bias: Tensor | None = None, *, copied: bool = True) -> Affine:
        """Make it from a weight (O, I), as torch stores it, and a bias (O,), zero by default.

        With ``copied``, the transposed weight is copied into contiguous memory, which makes products of few rows up to
        half again as fast. No copy is made where products would not be batch-invariant with it, as in float64 with odd
        numbers of outputs on AMD processors with AVX-512.
        """
        bias, weight = weight.new_zeros(len(weight)) if bias is None else bias, weight.detach().T
        if copied and weight.device.type == "cpu":
            copied = bool(sizes_alike(*weight.shape, True, weight.dtype, float32_setting()))
        return cls(weight.contiguous() if copied else weight, bias.detach())

    def __call__(self, rows: Tensor, out: Tensor | None = None) -> Tensor:
        """The product for rows (n, I), n a multiple of 16 (see ``rounded``): (n, O).

        In few calls (see ``devices.few_calls``) n is any number.
        """
        num_rows = rows.shape[0]  # ``len`` of a tensor is slow
        out = rows.new_empty(num_rows, self.bias.shape[0]) if out is None else out
        for block in self._blocks(num_rows):
            torch.addmm(self.bias, rows[block], self.weight, out=out[block])
        return out

    def add_product_(self, to: Tensor, rows: Tensor) -> None:
        """to += x W^T, without the bias."""
        for block in self._blocks(rows.shape[0]):
            to[block].addmm_(rows[block], self.weight)

    def _blocks(self, num_rows: int) -> tuple[slice, ...]:
        return (slice(None),) if few_calls(self.weight.device) else _cut(num_rows, self._sizes)

    @cached_property
    def _sizes(self) -> tuple[int, ...]:
        """Sizes of blocks, largest first, for the precision of the first product."""
        like = self.weight
        if like.device.type != "cpu":
            return tuple(range(BLOCK, 0, -ROUND))
        return sizes_alike(*like.shape, like.is_contiguous(), like.dtype, float32_setting()) or (ROUND,)


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
    """The numbers of rows, largest first, with which a product gives every row the same bits as in a block of 16.

    Found by multiplying random rows in blocks of each size: if sums are made in another order, some of so many numbers
    differ. The result is empty if the bits of a row depend on its place even in a block of 16. ``precision`` is torch's
    setting for float32 products, on which the result depends.
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
    alike = [size for size in sizes if torch.equal(found := multiplied(size), expected[: len(found)])]
    return tuple(alike) if ROUND in alike else ()


_LEAST_PRODUCT = 256  # of the sizes of a weight


def widened(parameter: Tensor, size: int, padding: float = 0.0, *, multiple: int = 1) -> Tensor:
    """A weight (O, I) or bias (O,) with rows of ``padding`` added, as batch-invariant products need; I is ``size``.

    Torch passes products of at most 4096 multiplications to another library, which rounds differently. With 16 rows or
    more (see ``rounded``) this concerns tiny models, and weights with few outputs.
    """
    wanted = max(len(parameter), _LEAST_PRODUCT // size + 1)
    missing = wanted + -wanted % multiple - len(parameter)
    if missing == 0:
        return parameter
    return torch.cat([parameter, parameter.new_full((missing, *parameter.shape[1:]), padding)])


@contextmanager
def arithmetic(precision: Float32Products, device: torch.device) -> Iterator[None]:
    """Compute as the search does within this context: on one thread, with this setting for float32 products."""
    with one_thread(), float32_products(precision, device):
        yield
