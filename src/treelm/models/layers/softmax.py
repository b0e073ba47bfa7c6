"""The softmax over a large vocabulary, in chunks of rows that fit into the cache."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from treelm.models.layers.precision import add_outer, multiply_into, operand

CHUNK_ROWS = 512
ALIGNED_COLUMNS = 16


class _SummedCrossEntropy(torch.autograd.Function):
    """Forms the gradient while a chunk's probabilities are at hand, so that they are never stored or computed twice."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor, targets: Tensor) -> Tensor:
        d_hidden, d_weight, d_bias = torch.empty_like(hidden), torch.zeros_like(weight), torch.zeros_like(bias)
        total = hidden.new_zeros((), dtype=torch.float64)
        multiplied = operand(weight)
        buffer = hidden.new_empty(min(CHUNK_ROWS, len(hidden)), _aligned(len(weight)))
        for start in range(0, len(hidden), CHUNK_ROWS):
            rows = slice(start, start + CHUNK_ROWS)
            wanted = targets[rows, None]
            logits = buffer[: len(wanted)]
            multiply_into(logits[:, : len(weight)], hidden[rows], multiplied.T, bias=bias)
            logits[:, len(weight) :] = -torch.inf
            probabilities, losses = _softmax_into(logits, wanted)
            total += losses.sum(dtype=torch.float64)
            probabilities.scatter_add_(1, wanted, probabilities.new_full(wanted.shape, -1.0))
            d_logits = probabilities[:, : len(weight)]
            multiply_into(d_hidden[rows], d_logits, multiplied)
            add_outer(d_weight, d_logits, hidden[rows], dtype=multiplied.dtype)
            d_bias += d_logits.sum(0)
        ctx.save_for_backward(d_hidden, d_weight, d_bias)
        return total

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        (scale,) = gradients
        d_hidden, d_weight, d_bias = (saved * scale.to(saved.dtype) for saved in ctx.saved_tensors)
        return d_hidden, d_weight, d_bias, None


def _aligned(num_columns: int) -> int:
    """As many columns or a few more, so that every row starts at a multiple of 64 bytes: MKL needs half the time then."""
    return -(-num_columns // ALIGNED_COLUMNS) * ALIGNED_COLUMNS


def _softmax_into(logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Turn logits (n, V) into probabilities in place; also -log p of the targets (n, 1).

    The largest probability is exp(largest logit) / normaliser, so the normaliser need not be summed a second time, and
    -log p stays exact where p itself underflows.
    """
    above_wanted = logits.amax(1, keepdim=True) - logits.gather(1, targets)
    probabilities = torch.softmax(logits, 1, out=logits)
    return probabilities, above_wanted - probabilities.amax(1, keepdim=True).log()


def summed_cross_entropy(hidden: Tensor, weight: Tensor, bias: Tensor, targets: Tensor) -> Tensor:
    """Sum over rows of -log softmax(hidden @ weight^T + bias)[target], a float64 scalar in nats.

    hidden (n, E), weight (V, E), bias (V), targets (n,).
    """
    if not torch.is_grad_enabled():
        return -target_log_probs(hidden, weight, bias, targets).sum()
    total: Tensor = _SummedCrossEntropy.apply(hidden, weight, bias, targets)  # type: ignore[no-untyped-call]
    return total


@torch.no_grad()
def target_log_probs(hidden: Tensor, weight: Tensor, bias: Tensor, targets: Tensor) -> Tensor:
    """log softmax(hidden @ weight^T + bias)[target] of every row, without gradient: float64 (n,) in nats."""
    chunks = []
    for rows, wanted in zip(torch.split(hidden, CHUNK_ROWS), torch.split(targets, CHUNK_ROWS), strict=True):
        logits = hidden.new_empty(len(rows), len(weight))
        multiply_into(logits, rows, weight.T, bias=bias)
        chunks.append(logits.gather(1, wanted[:, None])[:, 0].double() - logits.logsumexp(1).double())
    return torch.cat(chunks) if chunks else hidden.new_zeros(0, dtype=torch.float64)
