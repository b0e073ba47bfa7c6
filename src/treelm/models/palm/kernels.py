"""Weighted sums of spans with a hand-written gradient, which takes a fifth to a third less time.

Shapes: m longest span, T steps, B rows, D units of a direction.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from treelm.models.layers.precision import small_products


def weighted_sum(weights: Tensor, spans: Tensor) -> Tensor:
    """The sum of spans (m, T, B, 2D) with weights (T, B, m): (T, B, 2D)."""
    found: Tensor = _WeightedSum.apply(weights, spans)  # type: ignore[no-untyped-call]
    return found


class _WeightedSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weights: Tensor, spans: Tensor) -> Tensor:
        ctx.save_for_backward(weights, spans)
        flat = weights.flatten(0, 1)[:, None]
        with small_products(flat.device):
            return torch.bmm(flat, spans.flatten(1, 2).transpose(0, 1)).view(*spans.shape[1:])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor]:
        weights, spans = ctx.saved_tensors
        (d_context,) = gradients
        d_weights = None
        if ctx.needs_input_grad[0]:
            flat = d_context.flatten(0, 1)[:, None]
            with small_products(flat.device):
                d_weights = torch.bmm(flat, spans.flatten(1, 2).permute(1, 2, 0)).view(weights.shape)
        d_spans = torch.empty_like(spans)  # in the order of the scorer's gradient, to which it is added
        return d_weights, torch.mul(d_context, weights.permute(2, 0, 1)[..., None], out=d_spans)
