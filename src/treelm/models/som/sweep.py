"""The cell of a SOM over a graph as a function of leaves and weights, by the tape of the device."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from treelm.models.layers.devices import few_calls
from treelm.models.som.kernels import CellTape, CellWeights, SlotTape
from treelm.models.som.on_device import ChainTape
from treelm.models.som.plan import CellGraph


class PairMasks:
    """Dropout of the attachment scorer, drawn for pairs of a position and a candidate as they come.

    On a CPU masks are drawn for each step. On a GPU, where each draw is a call, they are drawn for many pairs at once.
    """

    def __init__(self, like: Tensor, rate: float) -> None:
        """Masks of the type, size and device of the inputs (n, D); on a GPU they are drawn for n pairs at a time."""
        self._like, self._rate, self._num_ahead = like, rate, len(like) if few_calls(like.device) else 0
        self._blocks, self._left = list[Tensor](), like.new_empty(2, 0, like.shape[1])

    def take(self, num_pairs: int) -> Tensor | None:
        """Scaled masks (2, pairs, D) of candidates and hidden units of the next pairs; None without dropout."""
        if not self._rate:
            return None
        if num_pairs > self._left.shape[1]:
            kept, shape = 1 - self._rate, (max(num_pairs, self._num_ahead), self._like.shape[1])
            self._left = torch.stack([self._like.new_empty(shape).bernoulli_(kept).div_(kept) for _ in range(2)])
        taken, self._left = self._left.tensor_split([num_pairs], 1)
        self._blocks.append(taken)
        return taken

    @property
    def taken(self) -> Tensor | None:
        """All masks that were taken, (2, pairs, D); None without dropout."""
        return torch.cat(self._blocks, 1) if self._blocks else None


def begin_tape(leaves: Tensor, weights: CellWeights, *, capacity: int, dropout: float) -> CellTape:
    """A tape over leaves (L, D), with memory for so many nodes, which grows where there are more."""
    kind = ChainTape if few_calls(leaves.device) else SlotTape
    return kind(leaves, weights, capacity=capacity, dropout=dropout)


def sweep_cell(leaves: Tensor, weights: CellWeights, graph: CellGraph, *, dropout: float = 0.0) -> Tensor:
    """The bank (L + n, D) of leaves (L, D) and of the results of a graph's nodes, computed by levels."""
    with torch.no_grad():
        tape = begin_tape(leaves, weights, capacity=len(graph.first), dropout=dropout)
        tape.sweep(graph)
    return differentiable_bank(leaves, weights, graph, tape)


def differentiable_bank(leaves: Tensor, weights: CellWeights, graph: CellGraph, tape: CellTape) -> Tensor:
    """The bank of a tape whose nodes stand in the order of a graph, as a function of leaves and weights."""
    if not torch.is_grad_enabled():
        return tape.bank
    bank: Tensor = _CellSweep.apply(leaves, *weights[:6], graph, tape)  # type: ignore[no-untyped-call]
    return bank


class _CellSweep(torch.autograd.Function):
    """The forward pass is on the tape; the backward pass goes through the levels, the last one first."""

    @staticmethod
    def forward(
        ctx: Any,
        leaves: Tensor,
        hidden_weight: Tensor,
        hidden_bias: Tensor,
        gate_weight: Tensor,
        gate_bias: Tensor,
        norm_weight: Tensor,
        norm_bias: Tensor,
        graph: CellGraph,
        tape: CellTape,
    ) -> Tensor:
        ctx.graph, ctx.tape = graph, tape
        bank, tape.bank = tape.bank, tape.bank[:0]  # what the result knows must not hold the result: a cycle
        ctx.save_for_backward(bank)
        return bank

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (bank,) = ctx.saved_tensors
        d_bank = gradients[0].clone()
        d_weights = ctx.tape.gradient(d_bank, bank, ctx.graph)
        return d_bank[: ctx.tape.num_leaves], *d_weights, None, None
