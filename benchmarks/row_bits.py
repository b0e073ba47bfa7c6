"""Whether the bits of a row of a product depend on how many rows there are, and on its place among them.

OMP_NUM_THREADS=1 python benchmarks/row_bits.py; as an AVX2 processor with the variables that ``make test-isa`` sets.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from typing import Literal

import one_line
import torch
from torch import Tensor

SHAPES = """256x1024 256x256 512x1024 1024x256 256x8953 256x30 160x640 160x1920 160x160 320x160 160x5543 160x512 160x64
128x512 64x256 64x64 30x120 30x30 30x5000 8x64 20x80 650x2600 100x33"""
SIZES = (1, 2, 3, 4, 7, 8, 12, 15, 16, 24, 31, 32, 33, 48, 63, 64, 96, 128, 192, 256)
ALL = SIZES[-1]


@dataclass(frozen=True, kw_only=True)
class Arguments:
    """What to multiply."""

    precision: Literal["highest", "high", "medium"] = "highest"
    """``torch.set_float32_matmul_precision``."""
    threads: int = 1
    copied: bool = False
    """Weights (I, O) in memory, as search has them, in place of torch's (O, I)."""
    trials: int = 12
    """Random choices and orders of rows for each size."""


def main(options: Arguments) -> None:
    """Print one line of JSON a number of rows: shapes in which rows differ from those among 256, or by their place."""
    torch.set_num_threads(options.threads)
    torch.set_float32_matmul_precision(options.precision)
    for size in SIZES:
        others, places, largest = list[str](), list[str](), 0.0
        for shape in SHAPES.split():
            by_company, by_place, difference = _try(shape, size, options)
            others += [shape] * by_company
            places += [shape] * by_place
            largest = max(largest, difference)
        row = {"rows": size, "differ_from_those_of_256": others, "depend_on_place": places, "largest": largest}
        print(json.dumps(row), flush=True)


def _try(shape: str, size: int, options: Arguments) -> tuple[bool, bool, float]:
    num_inputs, num_outputs = map(int, shape.split("x"))
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(num_outputs, num_inputs, generator=generator).div_(num_inputs**0.5).T
    weight = weight.contiguous() if options.copied else weight
    bias, rows = torch.randn(num_outputs, generator=generator), torch.randn(ALL, num_inputs, generator=generator)
    by_company, by_place, largest = False, False, 0.0
    for in_place in (False, True):
        expected = _multiply(rows, weight, bias, in_place=in_place)
        first: dict[int, Tensor] = {}
        for _ in range(options.trials):
            index = torch.randperm(ALL, generator=generator)[:size]
            for row, found in zip(index.tolist(), _multiply(rows[index], weight, bias, in_place=in_place), strict=True):
                by_place |= not torch.equal(first.setdefault(row, found), found)
                by_company |= not torch.equal(expected[row], found)
                largest = max(largest, float((expected[row] - found).abs().max()))
    return by_company, by_place, largest


def _multiply(rows: Tensor, weight: Tensor, bias: Tensor, *, in_place: bool) -> Tensor:
    if in_place:
        return bias.expand(len(rows), -1).clone().addmm_(rows, weight)
    return torch.addmm(bias, rows, weight)


if __name__ == "__main__":
    sys.exit(one_line.run(main, Arguments))
