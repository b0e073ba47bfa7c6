"""The faster products of float32 matrices, where they are products of float32 matrices."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Literal

import torch

Float32Products = Literal["highest", "high", "medium"]

_logger = logging.getLogger(__name__)


@contextmanager
def float32_products(wanted: Float32Products, device: torch.device | str) -> Iterator[None]:
    """``torch.set_float32_matmul_precision`` for the block only, but for what a CPU would round.

    "medium" lets a CPU multiply by oneDNN. On most that is float32 by other kernels; but where the processor has
    instructions for bfloat16, oneDNN rounds both factors to its eight bits. There, products stay plain float32. On a
    GPU "high" and "medium" mean TF32, as documented.
    """
    before = float32_setting()
    if before is None:
        yield
        return
    if wanted != "highest" and torch.device(device).type == "cpu" and rounds_operands(wanted):
        _say_once()
        wanted = "highest"
    torch.set_float32_matmul_precision(wanted)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def float32_setting() -> str | None:
    """Torch's setting now; None where it was set for each backend by itself, which then stays as it is."""
    try:
        return torch.get_float32_matmul_precision()
    except RuntimeError:
        return None


@cache
def rounds_operands(setting: Float32Products) -> bool:
    """Whether a CPU's product of float32 matrices with this setting rounds them first: found by multiplying."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(setting)
    try:
        matrix = torch.full((_SIZE, _SIZE), 1 + 2**-12)  # bfloat16 keeps seven bits after the point, TF32 ten
        return not torch.equal(matrix @ torch.eye(_SIZE), matrix)
    finally:
        torch.set_float32_matmul_precision(before)


_SIZE = 256  # torch leaves small products to another library


@cache
def _say_once() -> None:
    _logger.warning(
        "on this processor the faster float32 products round to bfloat16: taking plain float32 ones "
        '(precision = "bf16" rounds on purpose, and is faster)'
    )
