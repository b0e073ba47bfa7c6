"""Attention over spans (Peng, Schwartz & Smith 2019).

Shapes: m longest span, T steps, B rows, H hidden states, D a direction of the rational RNN.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from treelm.models.layers.precision import linear, small_products
from treelm.models.layers.recurrent import locked_dropout
from treelm.models.palm.spans import span_states


@dataclass(frozen=True, kw_only=True)
class SpanAttended:
    """What the attention gives at T steps."""

    outputs: Tensor  # (T, B, H)
    weights: Tensor  # (T, B, m) of spans of 1 to m symbols; all 0 where no span can be attended to
    log_weights: Tensor | None  # (T, B, m) -inf for spans that are not there; None: the weights were given


def uniform(*shape: int, fan_in: int) -> nn.Parameter:
    """Weights from U(-1/sqrt(fan_in), 1/sqrt(fan_in))."""
    bound = 1 / math.sqrt(fan_in)
    return nn.Parameter(torch.empty(*shape).uniform_(-bound, bound))


class RationalRNN(nn.Module):
    """Both directions of the rational RNN: f = sigmoid(W_f h + b), u = (1 - f) * tanh(W_u h) (Eq. 1)."""

    def __init__(self, input_size: int, size: int) -> None:
        """``size`` is that of one direction."""
        super().__init__()
        self.forget_weight = uniform(2 * size, input_size, fan_in=input_size)
        self.forget_bias = nn.Parameter(torch.zeros(2 * size))
        self.update_weight = uniform(2 * size, input_size, fan_in=input_size)

    def forward(self, hidden: Tensor, max_span: int) -> Tensor:
        """hidden (m + T, B, H) -> spans of 1 to m symbols (m, T, B, 2D), the first ones end at place m - 1."""
        zero = torch.zeros_like(self.forget_bias)
        flat, shape = hidden.flatten(0, 1), (*hidden.shape[:2], len(zero))
        forget = linear(flat, self.forget_weight, self.forget_bias, whole=True).sigmoid().view(shape)
        update = (1 - forget) * linear(flat, self.update_weight, zero, whole=True).tanh().view(shape)
        return span_states(forget, update, max_span)


class SpanScorer(nn.Module):
    """s = w_2 . tanh(W_g g + W_h h + b): one hidden layer over a span and the state that looks at it."""

    def __init__(self, input_size: int, span_size: int, size: int) -> None:
        """``size`` counts hidden units."""
        super().__init__()
        fan_in = input_size + span_size
        self.span_weight = uniform(size, span_size, fan_in=fan_in)
        self.hidden_weight = uniform(size, input_size, fan_in=fan_in)
        self.bias = nn.Parameter(torch.zeros(size))
        self.output_weight = uniform(size, fan_in=size)

    def forward(self, hidden: Tensor, spans: Tensor) -> Tensor:
        """hidden (T, B, H) and spans (m, T, B, 2D) -> scores (T, B, m)."""
        max_span, num_steps, num_rows, _ = spans.shape
        looking = linear(hidden.flatten(0, 1), self.hidden_weight, self.bias, whole=True)
        seen = linear(spans.flatten(0, 2), self.span_weight, torch.zeros_like(self.bias), whole=True)
        units = (seen.view(max_span, num_steps * num_rows, -1) + looking).tanh_()
        return (units @ self.output_weight).view(max_span, num_steps, num_rows).permute(1, 2, 0)


class ResidualGate(nn.Module):
    """h^ = g * MLP([h; a]) + (1 - g) * h, with g = sigmoid(W [h; a] + b) (Eq. 6)."""

    def __init__(self, input_size: int, context_size: int, size: int) -> None:
        """``size`` counts hidden units of the MLP, which are tanh."""
        super().__init__()
        joint = input_size + context_size
        self.gate_weight = uniform(input_size, joint, fan_in=joint)
        self.gate_bias = nn.Parameter(torch.zeros(input_size))
        self.hidden_weight = uniform(size, joint, fan_in=joint)
        self.hidden_bias = nn.Parameter(torch.zeros(size))
        self.output_weight = uniform(input_size, size, fan_in=size)
        self.output_bias = nn.Parameter(torch.zeros(input_size))

    def forward(self, hidden: Tensor, context: Tensor, dropout: float) -> Tensor:
        """hidden (T, B, H) and context (T, B, 2D) -> (T, B, H); units of the MLP's output are dropped in training."""
        joint = torch.cat([hidden, context], 2).flatten(0, 1)
        gate = linear(joint, self.gate_weight, self.gate_bias, whole=True).sigmoid().view(hidden.shape)
        inner = linear(joint, self.hidden_weight, self.hidden_bias, whole=True).tanh()
        new = linear(inner, self.output_weight, self.output_bias, whole=True).view(hidden.shape)
        return torch.lerp(hidden, locked_dropout(new, dropout, training=self.training), gate)


class _Context(torch.autograd.Function):
    """The sum of spans (m, T, B, D), each with its weight of (T, B, m): (T, B, D)."""

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


class SpanAttention(nn.Module):
    """From hidden states to hidden states that know the spans before them."""

    def __init__(
        self,
        input_size: int,
        *,
        rational_size: int,
        scorer_size: int | None,
        residual_size: int,
        branching: Literal["right", "left"] = "right",
    ) -> None:
        """Draw the weights. Without a scorer, scores are fixed (see ``scores``)."""
        super().__init__()
        self.rational = RationalRNN(input_size, rational_size)
        self.scorer = None if scorer_size is None else SpanScorer(input_size, 2 * rational_size, scorer_size)
        self.residual = ResidualGate(input_size, 2 * rational_size, residual_size)
        self.branching = branching

    def scores(self, hidden: Tensor, spans: Tensor) -> Tensor:
        """(T, B, m) of spans of 1 to m symbols; fixed ones are the length (right) or m + 1 less it (left)."""
        if self.scorer is not None:
            return self.scorer(hidden, spans)  # type: ignore[no-any-return]
        lengths = torch.arange(1, len(spans) + 1, dtype=hidden.dtype, device=hidden.device)
        scores = lengths if self.branching == "right" else lengths.flip(0)
        return scores.expand(*hidden.shape[:2], len(spans))

    def forward(
        self, hidden: Tensor, before: Tensor, available: Tensor, *, given: Tensor | None = None, dropout: float = 0.0
    ) -> SpanAttended:
        """hidden (T, B, H), the m states before (m, B, H) and how many symbols spans may go back, (T, B) of 0 to m.

        At each step the spans that end just before it are attended to. ``given`` (T, B, m) stands in for the weights.
        """
        max_span = len(before)
        spans = self.rational(torch.cat([before, hidden]), max_span)
        log_weights = None
        if given is None:
            log_weights = masked_log_softmax(self.scores(hidden, spans), available)
            given = log_weights.exp()
        context: Tensor = _Context.apply(given, spans)  # type: ignore[no-untyped-call]
        context = locked_dropout(context, dropout, training=self.training)
        outputs = self.residual(hidden, context, dropout)
        return SpanAttended(outputs=outputs, weights=given, log_weights=log_weights)


def masked_log_softmax(scores: Tensor, available: Tensor) -> Tensor:
    """log of weights (T, B, m) that sum to 1 over the first ``available`` (T, B) spans; -inf for the others.

    Gradients are finite, also where there is no span.
    """
    lengths = torch.arange(1, scores.shape[2] + 1, device=scores.device)
    outside = lengths > available[..., None]
    nothing = (available == 0)[..., None]
    log_weights = scores.masked_fill(outside & ~nothing, -math.inf).log_softmax(2)
    return log_weights.masked_fill(outside, -math.inf)
