"""States of spans and their weighted sums, with gradients by hand (Eqs. 1-2, Peng, Schwartz & Smith 2019).

Shapes: m longest span, T steps, P = m + T places, B rows, D a direction of the rational RNN.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from treelm.models.layers.precision import small_products


def span_states(forget: Tensor, update: Tensor, max_span: int) -> Tensor:
    """Both directions' states (m, T, B, 2D) of spans of length 1 to m, from gates and updates (P, B, 2D).

    The first D units are read forwards, c_{i,j} = f_j c_{i,j-1} + u_j, the others backwards, c_{i,j} = f_i c_{i+1,j} +
    u_i (Peng et al. 2019), both from zero. Each length extends the one before to the left, for all ends at
    once: backwards as it stands, forwards by c_{i,j} = c_{i+1,j} + (f_{i+1} ... f_j) u_i. Nothing is divided, so gates
    may be 0.
    """
    states: Tensor = _SpanStates.apply(forget, update, max_span)  # type: ignore[no-untyped-call]
    return states


class _SpanStates(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, forget: Tensor, update: Tensor, max_span: int) -> Tensor:
        num_ends, num_rows, width = len(forget) - max_span, *forget.shape[1:]
        size = width // 2
        states = forget.new_empty(max_span, num_ends, num_rows, width)
        kept = forget.new_empty(max_span, num_ends, num_rows, size)  # (f_{i+1} ... f_j)
        for index in range(max_span):
            first = max_span - 1 - index  # where the span of end 0 begins
            f, u = (values[first : first + num_ends] for values in (forget, update))
            if index == 0:
                states[0] = u
                kept[0] = 1
                continue
            before, now = states[index - 1], states[index]
            torch.mul(kept[index - 1], forget[first + 1 : first + 1 + num_ends, :, :size], out=kept[index])
            torch.addcmul(before[..., :size], kept[index], u[..., :size], out=now[..., :size])
            torch.addcmul(u[..., size:], f[..., size:], before[..., size:], out=now[..., size:])
        ctx.save_for_backward(forget, update, states, kept)
        return states

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None]:
        forget, update, states, kept = ctx.saved_tensors
        (d_states,) = gradients
        max_span, num_ends, _, width = states.shape
        size = width // 2
        d_forget, d_update = torch.zeros_like(forget), torch.zeros_like(update)
        d_state, d_kept = torch.zeros_like(states[0]), torch.zeros_like(kept[0])
        for index in reversed(range(max_span)):
            d_state += d_states[index]
            first = max_span - 1 - index
            here = slice(first, first + num_ends)
            d_forward, d_backward = d_state[..., :size], d_state[..., size:]
            d_update[here, :, :size].addcmul_(d_forward, kept[index])
            d_update[here, :, size:] += d_backward
            if index == 0:
                break
            d_kept.addcmul_(d_forward, update[here, :, :size])
            following = slice(first + 1, first + 1 + num_ends)
            d_forget[following, :, :size].addcmul_(d_kept, kept[index - 1])
            d_kept *= forget[following, :, :size]
            d_forget[here, :, size:].addcmul_(d_backward, states[index - 1][..., size:])
            d_backward *= forget[here, :, size:]
        return d_forget, d_update, None


def weighted_sum(weights: Tensor, spans: Tensor) -> Tensor:
    """The sum of spans (m, T, B, 2D), each with its weight of (T, B, m): (T, B, 2D)."""
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
