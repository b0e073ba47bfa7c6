"""The softmax over a large vocabulary, in chunks of rows that fit into the cache.

Probabilities (n, V) are never stored: the loss and its gradient are computed chunk by chunk.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from treelm.models.layers.precision import add_outer, column_sums, compiles_shapes, multiply_into, operand, product

CHUNK_ROWS = 512  # rows of a chunk
WHOLE_ROWS = 1024  # rows of a chunk that is multiplied as a whole
ALIGNED_COLUMNS = 16
ALIGNED_ROWS = 64  # multiple of rows in low precision, so that the last chunk is one product too
PIECE_ROWS = 32  # rows that are converted from low precision and back while they are in the cache


class _SummedCrossEntropy(torch.autograd.Function):
    """Computes the gradient together with the loss, while the probabilities of a chunk are known."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor, targets: Tensor, whole: bool) -> Tensor:
        multiplied, added = _aligned_operands(weight, bias)
        is_exact = multiplied.dtype == hidden.dtype
        num_rows = len(hidden) if is_exact else -(-len(hidden) // ALIGNED_ROWS) * ALIGNED_ROWS
        seen = hidden if is_exact else _with_zeros(hidden, num_rows, multiplied.dtype)
        d_hidden, d_bias = hidden.new_empty(seen.shape), torch.zeros_like(bias)
        d_weight: Tensor | None = None
        total = hidden.new_zeros((), dtype=torch.float64)
        chunk, num_columns = _rows_of_chunk(hidden, weight, WHOLE_ROWS if whole else CHUNK_ROWS), len(multiplied)
        buffer = multiplied.new_empty(min(chunk, len(seen)), _aligned(len(weight)))
        piece = chunk if is_exact or hidden.device.type != "cpu" else PIECE_ROWS
        converted = buffer if is_exact else hidden.new_empty(min(piece, len(buffer)), buffer.shape[1])
        for start in range(0, len(hidden), chunk):
            rows = slice(start, start + chunk)
            wanted, states = targets[rows, None], seen[rows]
            logits = buffer[: len(states)]
            multiply_into(logits[:, :num_columns], states, multiplied.T, bias=bias if is_exact else None, whole=whole)
            for part, of_part in zip(
                torch.split(logits[: len(wanted)], piece), torch.split(wanted, piece), strict=True
            ):
                values = part if is_exact else converted[: len(part)].copy_(part).add_(added)
                values[:, num_columns:].fill_(-torch.inf)
                total += _gradient_into(values, of_part).sum(dtype=torch.float64)
                d_bias += column_sums(values[:, : len(weight)])
                if not is_exact:
                    part.copy_(values)  # once for two products
            logits[len(wanted) :].zero_()
            d_logits = logits[:, :num_columns]
            multiply_into(d_hidden[rows], d_logits, multiplied, whole=whole)
            d_weight = _add_weight_gradient(d_weight, d_logits, states, weight, whole)
        d_hidden = d_hidden[: len(hidden)]
        ctx.save_for_backward(d_hidden, torch.zeros_like(weight) if d_weight is None else d_weight, d_bias)
        return total

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None]:
        (scale,) = gradients
        # In place, for memory; a second backward pass through this node is then an error, which torch reports.
        d_hidden, d_weight, d_bias = (saved.mul_(scale) for saved in ctx.saved_tensors)
        return d_hidden, d_weight, d_bias, None, None


def _rows_of_chunk(hidden: Tensor, weight: Tensor, num_rows: int) -> int:
    """``num_rows`` on a CPU, for its cache; on a GPU as many as take half a gigabyte of logits."""
    return num_rows if hidden.device.type == "cpu" else max(num_rows, 2**27 // len(weight))


def _aligned_operands(weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """Weight and bias in the types in which they are multiplied and added.

    In low precision rows without probability are added up to a multiple of ``ALIGNED_COLUMNS``: AMX takes a third less
    time if the rows of logits begin at multiples of 32 bytes.
    """
    dtype, num_rows = operand(weight[:0]).dtype, _aligned(len(weight))
    if dtype == weight.dtype:
        return weight, bias
    added = bias.new_full((num_rows,), -torch.inf)
    added[: len(bias)] = bias
    return _with_zeros(weight, num_rows, dtype), added


def _with_zeros(rows: Tensor, num_rows: int, dtype: torch.dtype) -> Tensor:
    """The rows in another type, filled up to ``num_rows`` with zeros."""
    out = rows.new_zeros(num_rows, rows.shape[1], dtype=dtype)
    out[: len(rows)] = rows
    return out


def _add_weight_gradient(total: Tensor | None, d_logits: Tensor, hidden: Tensor, weight: Tensor, whole: bool) -> Tensor:
    """The gradient of the weight with the part of this chunk; without ``total`` this is the first chunk."""
    num_rows = len(weight)
    if total is None and (whole or d_logits.dtype != weight.dtype):
        return product(d_logits.T, hidden, like=weight)[:num_rows]
    total = torch.zeros_like(weight) if total is None else total
    add_outer(total, d_logits[:, :num_rows], hidden, dtype=hidden.dtype, whole=whole)
    return total


def _aligned(num_columns: int) -> int:
    """``num_columns`` rounded up: MKL may take half the time if rows begin at multiples of 64 bytes."""
    return -(-num_columns // ALIGNED_COLUMNS) * ALIGNED_COLUMNS


def _gradient_into(logits: Tensor, targets: Tensor) -> Tensor:
    """Replace logits (n, V), contiguous, by the gradient of -log p of the targets (n, 1); returns -log p (n, 1).

    The largest probability is exp(largest logit) / normaliser. So the normaliser need not be summed again, and -log p
    is exact even where p underflows.
    """
    above_wanted = logits.amax(1, keepdim=True) - logits.gather(1, targets)
    probabilities = torch.softmax(logits, 1, out=logits)
    losses = above_wanted - probabilities.amax(1, keepdim=True).log()
    places = targets[:, 0] + torch.arange(len(logits), device=logits.device) * logits.shape[1]
    probabilities.view(-1).index_add_(0, places, probabilities.new_full(places.shape, -1.0))
    return losses


def summed_cross_entropy(
    hidden: Tensor, weight: Tensor, bias: Tensor, targets: Tensor, *, whole: bool = False
) -> Tensor:
    """The sum over rows of -log softmax(hidden @ weight^T + bias)[target], a float64 scalar in nats.

    hidden (n, E), weight (V, E), bias (V,), targets (n,). ``whole``: chunks are multiplied as a whole, for numbers of
    rows that occur again and again (see ``precision.multiply_into``).
    """
    whole = whole or not compiles_shapes(operand(weight[:0]).dtype, weight.device)
    if not torch.is_grad_enabled():
        return -target_log_probs(hidden, weight, bias, targets).sum()
    total: Tensor = _SummedCrossEntropy.apply(hidden, weight, bias, targets, whole)  # type: ignore[no-untyped-call]
    return total


class _Tied(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weight: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(rows)
        return weight.index_select(0, rows), weight.view_as(weight)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        d_rows, d_weight = gradients
        (rows,) = ctx.saved_tensors
        return d_weight.index_add_(0, rows, d_rows), None


def tied(weight: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """For tied embeddings: these rows (n, E) of the weight (V, E), and the weight, for ``summed_cross_entropy`` only.

    The gradients of both share one array: that of the rows is added in place to that of the softmax.
    """
    vectors, same = _Tied.apply(weight, rows)  # type: ignore[no-untyped-call]
    return vectors, same


@torch.no_grad()
def target_log_probs(hidden: Tensor, weight: Tensor, bias: Tensor, targets: Tensor) -> Tensor:
    """log softmax(hidden @ weight^T + bias)[target] of every row, without gradient: float64 (n,) in nats."""
    chunks, chunk = list[Tensor](), _rows_of_chunk(hidden, weight, CHUNK_ROWS)
    for rows, wanted in zip(torch.split(hidden, chunk), torch.split(targets, chunk), strict=True):
        logits = hidden.new_empty(len(rows), len(weight))
        multiply_into(logits, rows, weight.T, bias=bias)
        chunks.append(logits.gather(1, wanted[:, None])[:, 0].double() - logits.logsumexp(1).double())
    return torch.cat(chunks) if chunks else hidden.new_zeros(0, dtype=torch.float64)
