"""Attention over spans (Peng, Schwartz & Smith 2019): representations, scores and weights of spans, Eqs. 1-6.

At every step the model attends to the spans of 1 to m tokens that end just before it: a rational RNN represents each
span (``RationalRNN``), a scorer compares it with the hidden state (``SpanScorer``), and a gate joins the weighted sum
with the hidden state (``ResidualGate``).

Shapes: m longest span, T steps, B rows, H size of hidden states, D units of a direction of the rational RNN. Hidden
states are given with the m states before them, P = m + T places: step t is place m + t, and its spans end at place
m + t - 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from treelm.models.layers.lstm import GateWeights, uniform
from treelm.models.layers.precision import linear, small_products
from treelm.models.layers.recurrent import LSTMStack, locked_dropout
from treelm.models.scores import Loss

_UNITS = 1 << 22  # units of span representations that a chart holds at once


@dataclass(frozen=True, kw_only=True)
class SpanAttended:
    """The outputs and the weights of the attention at T steps."""

    outputs: Tensor  # (T, B, H)
    weights: Tensor  # (T, B, m) weights of spans of 1 to m tokens; all 0 where there is no span
    log_weights: Tensor | None  # (T, B, m) -inf for spans that do not exist; None if the weights were given


class RationalRNN(nn.Module):
    """Both directions of the rational RNN: f = sigmoid(W_f h + b), u = (1 - f) * tanh(W_u h) (Eq. 1)."""

    def __init__(self, input_size: int, size: int) -> None:
        """``size`` is the number of units of one direction."""
        super().__init__()
        self.forget_weight = uniform(2 * size, input_size, fan_in=input_size)
        self.forget_bias = nn.Parameter(torch.zeros(2 * size))
        self.update_weight = uniform(2 * size, input_size, fan_in=input_size)

    def forward(self, hidden: Tensor, max_span: int) -> Tensor:
        """hidden (m + T, B, H) -> spans of 1 to m tokens (m, T, B, 2D); those of step t end at place m + t - 1."""
        zero = torch.zeros_like(self.forget_bias)
        flat, shape = hidden.flatten(0, 1), (*hidden.shape[:2], len(zero))
        forget = linear(flat, self.forget_weight, self.forget_bias, whole=True).sigmoid().view(shape)
        update = (1 - forget) * linear(flat, self.update_weight, zero, whole=True).tanh().view(shape)
        return span_states(forget, update, max_span)


def span_states(forget: Tensor, update: Tensor, max_span: int) -> Tensor:
    """The states (m, T, B, 2D) of spans of length 1 to m in both directions, from f and u (P, B, 2D) (Eqs. 1, 2).

    The first D units read a span forwards, c_{i,j} = f_j c_{i,j-1} + u_j, the others backwards, c_{i,j} = f_i c_{i+1,j}
    + u_i, both from zero. Each length extends the spans of the length before by a token on the left, for all ends at
    once: backwards by the recurrence itself, forwards by c_{i,j} = c_{i+1,j} + (f_{i+1} ... f_j) u_i. There are no
    divisions, so gates may be 0.
    """
    num_ends = len(forget) - max_span
    (f_ahead, f_back), (u_ahead, u_back) = forget.chunk(2, 2), update.chunk(2, 2)
    ahead, back = [u_ahead[max_span - 1 : -1]], [u_back[max_span - 1 : -1]]
    kept = torch.ones_like(ahead[0])  # f_{i+1} ... f_j
    for first in range(max_span - 2, -1, -1):  # where the span of end 0 begins
        here, following = slice(first, first + num_ends), slice(first + 1, first + 1 + num_ends)
        kept = kept * f_ahead[following]
        ahead.append(torch.addcmul(ahead[-1], kept, u_ahead[here]))
        back.append(torch.addcmul(u_back[here], f_back[here], back[-1]))
    return torch.cat([torch.stack(ahead), torch.stack(back)], 3)


class SpanScorer(nn.Module):
    """s = w_2 . tanh(W_g g + W_h h + b): one hidden layer over a span g and the hidden state h that attends to it."""

    def __init__(self, input_size: int, span_size: int, size: int) -> None:
        """``size`` is the number of hidden units."""
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
        """``size`` is the number of hidden units of the MLP, which are tanh."""
        super().__init__()
        joint = input_size + context_size
        self.gate_weight = uniform(input_size, joint, fan_in=joint)
        self.gate_bias = nn.Parameter(torch.zeros(input_size))
        self.hidden_weight = uniform(size, joint, fan_in=joint)
        self.hidden_bias = nn.Parameter(torch.zeros(size))
        self.output_weight = uniform(input_size, size, fan_in=size)
        self.output_bias = nn.Parameter(torch.zeros(input_size))

    def forward(self, hidden: Tensor, context: Tensor, dropout: float) -> Tensor:
        """hidden h (T, B, H) and context a (T, B, 2D) -> (T, B, H), with dropout of the MLP's output in training."""
        joint = torch.cat([hidden, context], 2).flatten(0, 1)
        gate = linear(joint, self.gate_weight, self.gate_bias, whole=True).sigmoid().view(hidden.shape)
        inner = linear(joint, self.hidden_weight, self.hidden_bias, whole=True).tanh()
        new = linear(inner, self.output_weight, self.output_bias, whole=True).view(hidden.shape)
        return torch.lerp(hidden, locked_dropout(new, dropout, training=self.training), gate)


class SpanAttention(nn.Module):
    """Attention from hidden states (T, B, H) to the spans before them, which gives new hidden states (T, B, H)."""

    def __init__(
        self,
        input_size: int,
        *,
        rational_size: int,
        scorer_size: int | None,
        residual_size: int,
        branching: Literal["right", "left"] = "right",
    ) -> None:
        """Draw the weights. With ``scorer_size`` None, scores are fixed (see ``scores``)."""
        super().__init__()
        self.rational = RationalRNN(input_size, rational_size)
        self.scorer = None if scorer_size is None else SpanScorer(input_size, 2 * rational_size, scorer_size)
        self.residual = ResidualGate(input_size, 2 * rational_size, residual_size)
        self.branching = branching

    def scores(self, hidden: Tensor, spans: Tensor) -> Tensor:
        """The scores of spans of 1 to m tokens (T, B, m). Fixed ones are the length, or m + 1 minus it ("left")."""
        if self.scorer is not None:
            return self.scorer(hidden, spans)  # type: ignore[no-any-return]
        lengths = torch.arange(1, len(spans) + 1, dtype=hidden.dtype, device=hidden.device)
        scores = lengths if self.branching == "right" else lengths.flip(0)
        return scores.expand(*hidden.shape[:2], len(spans))

    def forward(
        self, hidden: Tensor, before: Tensor, available: Tensor, *, given: Tensor | None = None, dropout: float = 0.0
    ) -> SpanAttended:
        """Attend from hidden (T, B, H), with the m states ``before`` (m, B, H).

        ``available`` (T, B), 0 to m, says how many tokens spans may go back from each step. ``given`` (T, B, m)
        replaces the weights.
        """
        spans = self.rational(torch.cat([before, hidden]), len(before))
        log_weights = None
        if given is None:
            log_weights = masked_log_softmax(self.scores(hidden, spans), available)
            given = log_weights.exp()
        context = locked_dropout(weighted_sum(given, spans), dropout, training=self.training)
        outputs = self.residual(hidden, context, dropout)
        return SpanAttended(outputs=outputs, weights=given, log_weights=log_weights)

    @torch.no_grad()
    def chart(self, hidden: Tensor, longest: int) -> Tensor:
        """The scores (T, B, L) of spans of 1 to L tokens that end before each step, from states (T, B, H).

        L may be larger than the longest span in training. Scores of spans that begin before the text have no meaning.
        """
        num_steps, num_rows, size = hidden.shape
        padded = torch.cat([hidden.new_zeros(longest, num_rows, size), hidden])
        part = max(1, _UNITS // (longest * num_rows * len(self.rational.forget_bias)))
        scores = []
        for start in range(0, num_steps, part):
            here = hidden[start : start + part]
            spans = self.rational(padded[start : start + longest + len(here)], longest)
            scores.append(self.scores(here, spans).cpu())
        return torch.cat(scores)


def count_available(reach: Tensor, num_steps: int, max_span: int) -> tuple[Tensor, Tensor]:
    """The most tokens of spans that end just before each step (T, B), and after the last step (B,).

    ``reach`` (B,) is that before the first step.
    """
    counts = (reach + torch.arange(num_steps + 1, device=reach.device)[:, None]).clamp(max=max_span)
    return counts[:-1], counts[-1]


def masked_log_softmax(scores: Tensor, available: Tensor) -> Tensor:
    """log softmax of scores (T, B, m) over the first ``available`` (T, B) spans; -inf for the others.

    Gradients are finite, even where there is no span.
    """
    lengths = torch.arange(1, scores.shape[2] + 1, device=scores.device)
    outside = lengths > available[..., None]
    nothing = (available == 0)[..., None]
    log_weights = scores.masked_fill(outside & ~nothing, -math.inf).log_softmax(2)
    return log_weights.masked_fill(outside, -math.inf)


def _in_reach(gold: Tensor, available: Tensor) -> Tensor:
    lengths = torch.arange(1, gold.shape[2] + 1, device=gold.device)
    return gold & (lengths <= available[..., None])


def given_weights(gold: Tensor, available: Tensor, dtype: torch.dtype) -> Tensor:
    """Equal weights (T, B, m) for all gold spans (T, B, m) that are available (T, B); all 0 where there are none."""
    inside = _in_reach(gold, available).to(dtype)
    return inside / inside.sum(2, keepdim=True).clamp(min=1)


def span_cross_entropy(log_weights: Tensor, available: Tensor, gold: Tensor, mask: Tensor | None) -> Loss:
    """The cross-entropy of the attention (T, B, m) to the gold spans that are available, equally weighted in each step.

    Steps without gold spans have no loss, and steps outside of ``mask`` (T, B) are left out. The count is the number of
    steps with a loss.
    """
    targets = _in_reach(gold, available)
    if mask is not None:
        targets &= mask[..., None]
    shares = targets.double() / targets.sum(2, keepdim=True).clamp(min=1)
    wanted = log_weights.masked_fill(~targets, 0).double()
    return Loss(sum=-(shares * wanted).sum(), count=int(targets.any(2).sum()))


@torch.no_grad()
def draw_as_released(embedding: Tensor, stack: LSTMStack, attention: SpanAttention) -> None:
    """Draw all weights again as the public code does, with biases of 0; the paper does not say how they are drawn.

    Word vectors (V, E) are from U(-sqrt(3/E), sqrt(3/E)), the matrices of every gate of an LSTM layer are orthogonal,
    and those of the attention are uniform (Glorot & Bengio 2010), also where the public code has no such layer.
    """
    _draw_uniform(embedding, 3 / embedding.shape[1])
    for weights in (part for part in stack.modules() if isinstance(part, GateWeights)):
        for weight in (weights.weight_input, weights.weight_hidden):
            for gate in weight.chunk(4):
                nn.init.orthogonal_(gate)
    rational, scorer, residual = attention.rational, attention.scorer, attention.residual
    for weight in (rational.forget_weight, rational.update_weight):  # both directions, each a matrix by itself
        _draw_glorot(weight, weight.shape[1], len(weight) // 2, gain=nn.init.calculate_gain("tanh"))
    for weight in (residual.gate_weight, residual.hidden_weight, residual.output_weight):
        _draw_glorot(weight, weight.shape[1], len(weight))
    if scorer is not None:
        size, fan_in = len(scorer.bias), scorer.span_weight.shape[1] + scorer.hidden_weight.shape[1]
        for weight in (scorer.span_weight, scorer.hidden_weight):  # two parts of one matrix
            _draw_glorot(weight, fan_in, size)
        _draw_glorot(scorer.output_weight, size, 1)
    for module in (stack, attention):
        for name, parameter in module.named_parameters():
            if name.endswith("bias"):
                parameter.zero_()


def _draw_glorot(weight: Tensor, fan_in: int, fan_out: int, gain: float = 1.0) -> None:
    _draw_uniform(weight, 6 * gain**2 / (fan_in + fan_out))


def _draw_uniform(weight: Tensor, squared_bound: float) -> None:
    bound = math.sqrt(squared_bound)
    weight.uniform_(-bound, bound)


def weighted_sum(weights: Tensor, spans: Tensor) -> Tensor:
    """The sum of spans (m, T, B, 2D) with weights (T, B, m): (T, B, 2D).

    The hand-written gradient takes a fifth to a third less time.
    """
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
