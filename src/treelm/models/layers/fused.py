"""The LSTM over a forest in two Triton kernels, forward and gradient, for GPUs, where starting a kernel takes long.

One program of a kernel computes a group of trees and a block of units with their four gates. For the rows of a level it
gathers the states from which they step, multiplies, applies the cell and stores the result, with nothing in between
written to memory. For *whole* forests it then continues with the next level, as no tree needs states of another one; a
program then has all units, and reads the weights again at every level. Otherwise, for large weights, each level is a
launch of its own, with larger groups. The order of sums is fixed, so both are deterministic.

Shapes: D directions, each with its own weights; n rows, ordered by level and, within a level, by tree; H size of a
state. Gates are in the order of ``LSTMWeights``: i, f, o, g. Rows are rounded to the type of the weights; products are
summed in float32 or, if allowed, in TF32. Triton comes with torch's builds for CUDA; elsewhere its interpreter runs the
kernels (TRITON_INTERPRET=1).
"""
# mypy: disable-error-code="no-untyped-def"
# ruff: noqa: ANN001, ANN201 - kernels are not Python: their arguments are pointers, numbers and constants

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from treelm.models.layers.levels import Forest
from treelm.models.layers.precision import float32_setting, operand, product

try:
    import triton
    import triton.language as tl
except ImportError:  # ``training.trainer.check_settings`` refuses a run that asks for these kernels
    triton = tl = None

UNITS, INNER = 64, 32  # units of a block; terms of a product that are loaded at once
WHOLE_ROWS, LEVEL_ROWS = 16, 32  # rows of a block; a product on a GPU has at least 16
PROGRAMS = 128  # groups of whole trees, if there are enough trees: about the number of a GPU's processors
_NUMBERS = ("num_rows", "num_trees", "trees_each", "first_level", "end_level")


def _jit(kernel: Any) -> Any:
    return triton.jit(kernel, do_not_specialize=_NUMBERS) if triton else kernel


@_jit
def forward_kernel(
    projected, weight, below, bounds, gates, cell, hidden,
    num_rows, num_trees, trees_each, first_level, end_level,
    SIZE: tl.constexpr, ROWS: tl.constexpr, UNITS: tl.constexpr, INNER: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """[i f o g] = projected[r] + W h[below[r]]; c[r] = σ(f) c[below[r]] + σ(i) tanh(g); h[r] = σ(o) tanh(c[r]).

    projected (D, n, 4H), weight (D, 4H, H), below (n,), bounds (levels, trees + 1) -> gates after their nonlinearity
    (D, n, 4H), cell and hidden (D, n, H).
    """
    group, base = tl.program_id(0), tl.program_id(2).to(tl.int64) * num_rows
    weight += tl.program_id(2) * 4 * SIZE * SIZE
    for level in range(first_level, end_level):
        bound = bounds + level * (num_trees + 1)
        first, end = (
            tl.load(bound + group * trees_each),
            tl.load(bound + tl.minimum((group + 1) * trees_each, num_trees)),
        )
        for start in range(first, end, ROWS):
            rows = start + tl.arange(0, ROWS)
            is_row = rows < end
            before = tl.load(below + rows, mask=is_row, other=-1)
            steps = (before >= 0)[:, None]
            row, row_before = (base + rows)[:, None], (base + before)[:, None]
            for unit in range(tl.program_id(1) * UNITS, SIZE, tl.num_programs(1) * UNITS):
                units = (unit + tl.arange(0, UNITS))[None, :]
                here, at, to = is_row[:, None] & (units < SIZE), row * 4 * SIZE + units, row * SIZE + units
                i = tl.load(projected + at, mask=here, other=0.0).to(tl.float32)
                f = tl.load(projected + at + SIZE, mask=here, other=0.0).to(tl.float32)
                o = tl.load(projected + at + 2 * SIZE, mask=here, other=0.0).to(tl.float32)
                g = tl.load(projected + at + 3 * SIZE, mask=here, other=0.0).to(tl.float32)
                for inner in range(0, SIZE, INNER):
                    terms = inner + tl.arange(0, INNER)
                    is_term = steps & (terms < SIZE)[None, :]
                    state = tl.load(hidden + row_before * SIZE + terms[None, :], mask=is_term, other=0.0)
                    state = state.to(weight.dtype.element_ty).to(tl.float32)
                    w, is_weight = weight + units * SIZE + terms[:, None], (units < SIZE) & (terms < SIZE)[:, None]
                    w_i = tl.load(w, mask=is_weight, other=0.0).to(tl.float32)
                    w_f = tl.load(w + SIZE * SIZE, mask=is_weight, other=0.0).to(tl.float32)
                    w_o = tl.load(w + 2 * SIZE * SIZE, mask=is_weight, other=0.0).to(tl.float32)
                    w_g = tl.load(w + 3 * SIZE * SIZE, mask=is_weight, other=0.0).to(tl.float32)
                    i = tl.dot(state, w_i, i, input_precision=PRECISION)
                    f = tl.dot(state, w_f, f, input_precision=PRECISION)
                    o = tl.dot(state, w_o, o, input_precision=PRECISION)
                    g = tl.dot(state, w_g, g, input_precision=PRECISION)
                i, f, o = 1 / (1 + tl.exp(-i)), 1 / (1 + tl.exp(-f)), 1 / (1 + tl.exp(-o))
                g = 2 / (1 + tl.exp(-2 * g)) - 1  # tanh
                c = f * tl.load(cell + row_before * SIZE + units, mask=here & steps, other=0.0) + i * g
                tl.store(gates + at, i, mask=here)
                tl.store(gates + at + SIZE, f, mask=here)
                tl.store(gates + at + 2 * SIZE, o, mask=here)
                tl.store(gates + at + 3 * SIZE, g, mask=here)
                tl.store(cell + to, c, mask=here)
                tl.store(hidden + to, o * (2 / (1 + tl.exp(-2 * c)) - 1), mask=here)
        tl.debug_barrier()  # the next level reads what other threads of this program have stored


@_jit
def backward_kernel(
    d_hidden, weight, below, children, bounds, gates, cell, d_gates, d_before,
    num_rows, num_trees, trees_each, first_level, end_level,
    SIZE: tl.constexpr, ROWS: tl.constexpr, UNITS: tl.constexpr, INNER: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """The gradient of a row from those of the rows s that step from it, which are children[r]:children[r + 1].

    dh = d_hidden[r] + Σ_s W^T d_gates[s]; dc = Σ_s d_before[s] + dh o (1 - tanh² c). Then d_i = dc g i (1 - i),
    d_f = dc c[below[r]] f (1 - f), d_o = dh tanh(c) o (1 - o), d_g = dc i (1 - g²), and d_before[r] = dc f is for the
    cell below. From the last level to the first.

    d_hidden and d_before (D, n, H), d_gates (D, n, 4H), children (n + 1,).
    """
    group, base = tl.program_id(0), tl.program_id(2).to(tl.int64) * num_rows
    weight += tl.program_id(2) * 4 * SIZE * SIZE
    for above in range(0, end_level - first_level):
        bound = bounds + (end_level - 1 - above) * (num_trees + 1)
        first, end = (
            tl.load(bound + group * trees_each),
            tl.load(bound + tl.minimum((group + 1) * trees_each, num_trees)),
        )
        for start in range(first, end, ROWS):
            rows = start + tl.arange(0, ROWS)
            is_row = rows < end
            before = tl.load(below + rows, mask=is_row, other=-1)
            steps, row, row_before = (before >= 0)[:, None], (base + rows)[:, None], (base + before)[:, None]
            child, last = (
                tl.load(children + rows, mask=is_row, other=0),
                tl.load(children + rows + 1, mask=is_row, other=0),
            )
            most = tl.max(last - child, 0)
            for unit in range(tl.program_id(1) * UNITS, SIZE, tl.num_programs(1) * UNITS):
                units = (unit + tl.arange(0, UNITS))[None, :]
                here, at, to = is_row[:, None] & (units < SIZE), row * 4 * SIZE + units, row * SIZE + units
                dh = tl.load(d_hidden + to, mask=here, other=0.0)
                dc = tl.full((ROWS, UNITS), 0.0, tl.float32)
                for number in range(0, most):
                    exists, source = (child + number < last)[:, None], (base + child + number)[:, None]
                    dc += tl.load(d_before + source * SIZE + units, mask=exists & (units < SIZE), other=0.0)
                    for inner in range(0, 4 * SIZE, INNER):
                        terms = inner + tl.arange(0, INNER)
                        is_term, is_weight = (
                            exists & (terms < 4 * SIZE)[None, :],
                            (units < SIZE) & (terms < 4 * SIZE)[:, None],
                        )
                        d_gate = tl.load(d_gates + source * 4 * SIZE + terms[None, :], mask=is_term, other=0.0)
                        w = tl.load(weight + terms[:, None] * SIZE + units, mask=is_weight, other=0.0)
                        d_gate = d_gate.to(weight.dtype.element_ty).to(tl.float32)
                        dh = tl.dot(d_gate, w.to(tl.float32), dh, input_precision=PRECISION)
                i = tl.load(gates + at, mask=here, other=0.0)
                f = tl.load(gates + at + SIZE, mask=here, other=0.0)
                o = tl.load(gates + at + 2 * SIZE, mask=here, other=0.0)
                g = tl.load(gates + at + 3 * SIZE, mask=here, other=0.0)
                c_before = tl.load(cell + row_before * SIZE + units, mask=here & steps, other=0.0)
                tanh_c = 2 / (1 + tl.exp(-2 * tl.load(cell + to, mask=here, other=0.0))) - 1
                dc += dh * o * (1 - tanh_c * tanh_c)
                tl.store(d_gates + at, dc * g * i * (1 - i), mask=here)
                tl.store(d_gates + at + SIZE, dc * c_before * f * (1 - f), mask=here)
                tl.store(d_gates + at + 2 * SIZE, dh * tanh_c * o * (1 - o), mask=here)
                tl.store(d_gates + at + 3 * SIZE, dc * i * (1 - g * g), mask=here)
                tl.store(d_before + to, dc * f, mask=here)
        tl.debug_barrier()


class _Forest(torch.autograd.Function):
    """Calls both kernels; the gradient of the weights is one product after them."""

    @staticmethod
    def forward(ctx: Any, projected: Tensor, weight_hidden: Tensor, forest: Forest) -> Tensor:
        weight, new = operand(weight_hidden).contiguous(), weight_hidden.new_empty
        gates, (cell, hidden) = new(projected.shape), (new(*projected.shape[:2], weight.shape[2]) for _ in range(2))
        may_round = weight.dtype == torch.bfloat16 or float32_setting() in ("high", "medium")
        ctx.precision = "tf32" if may_round else "ieee"  # which loses nothing of bfloat16
        arrays = projected.contiguous(), weight, forest.below, forest.bounds, gates, cell, hidden
        _launch(forward_kernel, arrays, forest, ctx.precision, forest.spans)
        ctx.save_for_backward(weight, gates, cell, hidden)
        ctx.forest, ctx.like = forest, projected.dtype
        return hidden

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None]:
        (weight, gates, cell, hidden), forest = ctx.saved_tensors, ctx.forest
        d_gates, d_before = torch.empty_like(gates), torch.empty_like(hidden)
        arrays = gradients[0].contiguous(), weight, forest.below, forest.children, forest.bounds, gates, cell
        _launch(backward_kernel, (*arrays, d_gates, d_before), forest, ctx.precision, forest.spans[::-1])
        starts, dtype = forest.bounds.shape[1] - 1, weight.dtype  # the rows of level 0, which step from nothing
        pairs = [
            (one[starts:].to(dtype).T, state.index_select(0, forest.below[starts:]).to(dtype))
            for one, state in zip(d_gates, hidden, strict=True)
        ]
        d_weight = torch.stack([product(*pair, like=d_gates) for pair in pairs])
        return d_gates.to(ctx.like), d_weight, None


def _launch(kernel: Any, arrays: Sequence[Tensor], forest: Forest, precision: str, spans: Sequence[range]) -> None:
    directions, size, num_trees = len(arrays[1]), arrays[1].shape[2], forest.bounds.shape[1] - 1
    rows, each, blocks = LEVEL_ROWS, LEVEL_ROWS, -(-size // UNITS)
    if forest.is_whole:
        rows, each, blocks = WHOLE_ROWS, min(max(num_trees * directions // PROGRAMS, 1), WHOLE_ROWS), 1
    start = kernel[-(-num_trees // each), blocks, directions]
    constants = {"SIZE": size, "ROWS": rows, "UNITS": UNITS, "INNER": INNER, "PRECISION": precision}
    constants["enable_fp_fusion"] = True  # Triton 3.9 warns where nothing is said
    for span in spans:
        start(*arrays, len(forest.below), num_trees, each, span.start, span.stop, **constants)


def run_forest(projected: Tensor, weight_hidden: Tensor, forest: Forest) -> Tensor:
    """Hidden states (D, n, H).

    ``projected`` (D, n, 4H) are the products of inputs with their weights, bias included; ``weight_hidden`` (D, 4H, H)
    are the weights of states.
    """
    hidden: Tensor = _Forest.apply(projected, weight_hidden, forest)  # type: ignore[no-untyped-call]
    return hidden
