"""Any function of rows, run level by level over shared buffers, with its gradient.

A system says in plain PyTorch what is computed at a kind of node, and which rows of which buffers each node reads and
writes. Rows are gathered once and gradients are scattered once, so memory traffic is proportional to the number of
nodes, not to levels times nodes. Gradients of matrices are formed from many rows at a time.

For example, running sums h_t = h_{t-1} + x_t of two steps: level t reads row t of the buffer "h", which is h_{t-1}, and
row t of "x", and writes row t + 1 of "h".

>>> buffers = {"x": torch.tensor([[1.0], [2.0]]), "h": torch.zeros(3, 1)}
>>> steps, later = [0, 1, 2], [1, 2, 3]
>>> reads = [Rows("h", None, steps), Rows("x", None, steps)]
>>> add = Kind(function=lambda matrices, h, x: (h + x,), reads=reads, writes=[Rows("h", None, later)])
>>> sweep([add], buffers, {})["h"].tolist()
[[0.0], [1.0], [3.0]]
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from treelm.models.layers.precision import add_outer, multiply_into, operand

OUTER_ROWS = 4096  # rows that are collected before they are added to a matrix's gradient


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of a buffer, by level: level k has the rows index[offsets[k]:offsets[k + 1]].

    Without an index, level k has the rows offsets[k]:offsets[k + 1] themselves; these may be read, or written, once.
    """

    buffer: str
    index: Tensor | None
    offsets: Sequence[int]

    def count(self, level: int) -> int:
        """The number of rows of a level."""
        return self.offsets[level + 1] - self.offsets[level]

    def gather(self, buffers: Mapping[str, Tensor], level: int) -> Tensor:
        """A copy or view of the rows of a level."""
        rows, buffer = slice(self.offsets[level], self.offsets[level + 1]), buffers[self.buffer]
        return buffer[rows] if self.index is None else buffer.index_select(0, self.index[rows])

    def scatter(self, buffers: Mapping[str, Tensor], level: int, values: Tensor) -> None:
        """Write the rows of a level."""
        rows, buffer = slice(self.offsets[level], self.offsets[level + 1]), buffers[self.buffer]
        if self.index is None:
            buffer[rows] = values
        else:
            buffer.index_copy_(0, self.index[rows], values)

    def add(self, buffers: Mapping[str, Tensor], level: int, values: Tensor) -> None:
        """Add to the rows of a level."""
        rows, buffer = slice(self.offsets[level], self.offsets[level + 1]), buffers[self.buffer]
        if self.index is None:
            buffer[rows] += values
        else:
            buffer.index_add_(0, self.index[rows], values)


@dataclass(frozen=True, slots=True)
class Constant:
    """Values without gradient, by level: level k has values[offsets[k]:offsets[k + 1]]."""

    values: Tensor
    offsets: Sequence[int]

    def of(self, level: int) -> Tensor:
        """The values of a level."""
        return self.values[self.offsets[level] : self.offsets[level + 1]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Kind:
    """Nodes of one kind: ``function(matrices, *rows read, *constants)`` returns the rows that are written."""

    function: Callable[..., tuple[Tensor, ...]]
    reads: Sequence[Rows]
    constants: Sequence[Constant] = ()
    writes: Sequence[Rows]


@dataclass(slots=True)
class Matrix:
    """An affine map, inputs @ weight^T + bias, whose gradient is formed later from many rows."""

    weight: Tensor  # in the type in which it is multiplied
    bias: Tensor | None
    d_weight: Tensor
    d_bias: Tensor | None
    collected: list[tuple[Tensor, Tensor]] = field(default_factory=list)
    num_collected: int = 0

    def __call__(self, inputs: Tensor) -> Tensor:
        """inputs (n, I) -> (n, O)."""
        out: Tensor = _DeferredLinear.apply(inputs, self)  # type: ignore[no-untyped-call]
        return out

    def collect(self, inputs: Tensor, gradient: Tensor) -> None:
        """Keep rows of inputs and of gradients for the gradient of the weight."""
        self.collected.append((inputs, gradient))
        self.num_collected += len(inputs)
        if self.num_collected >= OUTER_ROWS:
            self.flush()

    def flush(self) -> None:
        """Add the rows that were collected to the gradient."""
        if self.collected:
            inputs, gradients = (torch.cat(rows) for rows in zip(*self.collected, strict=True))
            add_outer(self.d_weight, gradients, inputs, dtype=self.weight.dtype)
            if self.d_bias is not None:
                self.d_bias += gradients.sum(0)
        self.collected, self.num_collected = [], 0


class _DeferredLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, inputs: Tensor, matrix: Matrix) -> Tensor:
        ctx.save_for_backward(inputs)
        ctx.matrix = matrix
        out = inputs.new_empty(len(inputs), len(matrix.weight))
        multiply_into(out, inputs, matrix.weight.T, bias=matrix.bias)
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (inputs,) = ctx.saved_tensors
        (gradient,) = gradients
        ctx.matrix.collect(inputs, gradient)
        d_inputs = torch.empty_like(inputs)
        multiply_into(d_inputs, gradient, ctx.matrix.weight)
        return d_inputs, None


Weights = Mapping[str, tuple[Tensor, Tensor | None]]


class _Sweep(torch.autograd.Function):
    """All levels; the small graph of autograd of each level is kept for the backward pass."""

    @staticmethod
    def forward(
        ctx: Any,
        kinds: Sequence[Kind],
        buffer_names: Sequence[str],
        matrix_names: Sequence[str],
        keeps_graphs: bool,
        *tensors: Tensor | None,
    ) -> tuple[Tensor, ...]:
        given, parameters = tensors[: len(buffer_names)], tensors[len(buffer_names) :]
        buffers = {name: buffer.clone() for name, buffer in zip(buffer_names, given, strict=True) if buffer is not None}
        matrices = _matrices(matrix_names, parameters)
        num_levels = max(len(rows.offsets) for kind in kinds for rows in kind.writes) - 1
        graphs = []
        for level in range(num_levels):
            for kind in kinds:
                if kind.writes[0].count(level):
                    graph = _run(kind, level, buffers, matrices, keeps_graph=keeps_graphs)
                    if keeps_graphs:
                        graphs.append((kind, level, *graph))
        ctx.graphs, ctx.matrices, ctx.buffer_names = graphs, matrices, buffer_names
        return tuple(buffers[name] for name in buffer_names)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        d_buffers = {name: gradient.clone() for name, gradient in zip(ctx.buffer_names, gradients, strict=True)}
        while ctx.graphs:  # a level's memory is free as soon as its gradient is known
            kind, level, inputs, outputs = ctx.graphs.pop()
            d_outputs = []
            for rows in kind.writes:
                d_outputs.append(rows.gather(d_buffers, level))
                if rows.index is not None:  # what was overwritten had no influence
                    rows.scatter(d_buffers, level, torch.zeros_like(d_outputs[-1]))
            d_inputs = torch.autograd.grad(outputs, inputs, d_outputs, allow_unused=True)
            for rows, d_rows in zip(kind.reads, d_inputs, strict=True):
                if d_rows is not None:
                    rows.add(d_buffers, level, d_rows)
        for matrix in ctx.matrices.values():
            matrix.flush()
        d_parameters = [d for matrix in ctx.matrices.values() for d in (matrix.d_weight, matrix.d_bias)]
        return None, None, None, None, *(d_buffers[name] for name in ctx.buffer_names), *d_parameters


def _matrices(names: Sequence[str], parameters: Sequence[Tensor | None]) -> dict[str, Matrix]:
    matrices = {}
    for name, weight, bias in zip(names, parameters[::2], parameters[1::2], strict=True):
        assert weight is not None
        matrices[name] = Matrix(
            weight=operand(weight.detach()),
            bias=None if bias is None else bias.detach(),
            d_weight=torch.zeros_like(weight),
            d_bias=None if bias is None else torch.zeros_like(bias),
        )
    return matrices


def _run(
    kind: Kind, level: int, buffers: Mapping[str, Tensor], matrices: Mapping[str, Matrix], *, keeps_graph: bool
) -> tuple[list[Tensor], tuple[Tensor, ...]]:
    """Compute the nodes of a kind in a level; returns their inputs and outputs, which a graph of autograd connects."""
    with torch.set_grad_enabled(keeps_graph):
        inputs = [rows.gather(buffers, level).detach().requires_grad_(keeps_graph) for rows in kind.reads]
        outputs = kind.function(matrices, *inputs, *(constant.of(level) for constant in kind.constants))
    for written, output in zip(kind.writes, outputs, strict=True):
        written.scatter(buffers, level, output.detach())
    return inputs, outputs


def sweep(kinds: Sequence[Kind], buffers: Mapping[str, Tensor], weights: Weights) -> dict[str, Tensor]:
    """Run all levels, and in each level all kinds in the given order; returns the buffers after the last level.

    Rows of ``buffers`` that are read before they are written must hold their values. ``weights`` names matrices, as
    pairs of a weight and a bias or None, which functions receive as callables. Gradients reach buffers and weights;
    other tensors that a function uses are constants.
    """
    parameters = [tensor for pair in weights.values() for tensor in pair]
    names = tuple(buffers), tuple(weights)
    swept = _Sweep.apply(kinds, *names, torch.is_grad_enabled(), *buffers.values(), *parameters)  # type: ignore[no-untyped-call]
    return dict(zip(buffers, swept, strict=True))
