"""Packed weights, for products of one weight with few rows again and again, as at every step of a recurrent network.

With few rows, a large part of a product's time goes into reordering the weight for the kernel. oneDNN can do that once
(it takes a few milliseconds, about as long as two products). Every product after that is faster than an ordinary one,
whatever the number of rows: with 20 rows 1.4 to 1.8 times as fast in fp32, and 1.3 times in bf16.

Sequences whose rows are packed, without padding, are something else: ``packed_sequences.py``.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from treelm.models.layers.precision import add_product, multiply_into

_ops: Any = torch.ops
ALIGNED_ROWS, LARGEST_PIECE = 8, 512
LEVEL_ROWS = 64  # the number of rows for which the weights of sweeps are packed; others take little longer


class PackedWeight:
    """inputs (n, I) -> inputs @ weight^T (n, O), for a fixed weight (O, I).

    The weight is what ``precision.operand`` returns; its type is the precision of the product. Where oneDNN cannot pack
    (other devices and types, other builds of torch) the product is an ordinary one, equal but for rounding.
    """

    def __init__(self, weight: Tensor, num_rows: int) -> None:
        """Pack a weight, which must not change afterwards, for the most frequent number of rows."""
        self._weight, self._num_rows = weight, num_rows
        self._packed = packed(weight, num_rows)

    def __call__(self, inputs: Tensor) -> Tensor:
        """inputs @ weight^T as one product; inputs and result have the type of the weight."""
        if self._packed is None:
            return inputs @ self._weight.T
        missing = -len(inputs) % ALIGNED_ROWS if len(inputs) != self._num_rows else 0
        if not missing:
            return _multiply_packed(inputs, self._packed)
        return _multiply_packed(functional.pad(inputs, (0, 0, 0, missing)), self._packed)[: len(inputs)]

    def multiply_into(self, out: Tensor, inputs: Tensor, *, bias: Tensor | None = None) -> None:
        """out = inputs @ weight^T (+ bias (O,) or (n, O), which may be ``out``)."""
        inputs = inputs.to(self._weight.dtype)
        if self._packed is None:
            multiply_into(out, inputs, self._weight.T, bias=bias)
            return
        for start, end in self._pieces(len(inputs)):
            rows, product = out[start:end], self(inputs[start:end])
            if bias is None:
                rows.copy_(product)
            else:
                torch.add(product, bias if bias.dim() == 1 else bias[start:end], out=rows)

    def _pieces(self, num_rows: int) -> Iterator[tuple[int, int]]:
        """Cut rows into pieces of few different sizes, because oneDNN compiles a kernel for every new size."""
        if num_rows == self._num_rows:
            yield 0, num_rows
            return
        start = 0
        while start < num_rows:
            rest = num_rows - start
            size = rest if rest <= 128 else min(rest // 64 * 64, LARGEST_PIECE)
            yield start, start + size
            start += size


class PackedProduct:
    """A weight (O, I) packed for the forward product, and for that of its gradient, each when it is first used."""

    def __init__(self, weight: Tensor, num_rows: int) -> None:
        """``weight`` is what ``precision.operand`` returns."""
        self.weight, self._num_rows = weight, num_rows

    @cached_property
    def forward(self) -> PackedWeight:
        """(n, I) -> (n, O)."""
        return PackedWeight(self.weight, self._num_rows)

    @cached_property
    def backward(self) -> PackedWeight:
        """(n, O) -> (n, I)."""
        return PackedWeight(self.weight.T, self._num_rows)


class LevelProduct:
    """inputs (n, I) -> inputs @ weight^T + bias (n, O), for the levels of a sweep.

    The type of the weight is the precision of the product. In bf16 the weight is packed; in other types the product is
    an ordinary one.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        """``weight`` (O, I) must not change afterwards; ``bias`` (O,) is added by ``into``."""
        self._weight, self._bias = weight, bias
        self._packed = packed(weight, LEVEL_ROWS) if weight.dtype == torch.bfloat16 else None

    def into(self, out: Tensor, inputs: Tensor) -> None:
        """out = inputs @ weight^T (+ bias)."""
        if self._packed is None:
            multiply_into(out, inputs, self._weight.T, bias=self._bias)
            return
        out.copy_(_multiply_packed(inputs, self._packed))
        if self._bias is not None:
            out.add_(self._bias)

    def add_to(self, total: Tensor, inputs: Tensor) -> None:
        """total += inputs @ weight^T."""
        if self._packed is None:
            add_product(total, inputs, self._weight.T)
        else:
            total += _multiply_packed(inputs, self._packed).to(total.dtype)  # torch takes longer to add mixed types


def packed(weight: Tensor, num_rows: int) -> Tensor | None:
    """A weight (O, I) in the order in which oneDNN multiplies ``num_rows`` rows; None if it cannot.

    Not every processor can multiply bfloat16: with AVX2 alone, oneDNN does not.
    """
    if weight.device.type != "cpu" or weight.dtype not in (torch.float32, torch.bfloat16):
        return None
    available = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    if not available or (weight.dtype == torch.bfloat16 and not _multiplies_bf16()):
        return None
    try:
        reordered: Tensor = _ops.mkldnn._reorder_linear_weight(weight.detach().contiguous(), num_rows)
    except (AttributeError, RuntimeError):  # a build of torch without these operators
        return None
    return reordered


def _multiply_packed(inputs: Tensor, reordered: Tensor) -> Tensor:
    product: Tensor = _ops.mkldnn._linear_pointwise(inputs, reordered, None, "none", [], "")
    return product


def _multiplies_bf16() -> bool:
    supported: bool = _ops.mkldnn._is_mkldnn_bf16_supported()
    return supported
