"""One step of a layer of the reading network, forward and backward by hand (Eqs. 10-12, Shen et al. 2018).

Attention over slots, of which some may be closed, or all: then nothing is attended to. Then an LSTM cell with layer
normalisation (Ba et al. 2016): gates = LN(W_x x + b_x) + LN(W_h h + b_h), in the order i, f, o, g; c' = f c + i g;
h' = o tanh(LN(c')). The norm divides by the unbiased standard deviation + 1e-6, as the code that was released with PRPN
does. Shapes: T steps, B rows, N slots, H hidden units.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

from treelm.models.layers.lstm import tanh_into

EPSILON = 1e-6


@dataclass(slots=True)
class Activations:
    """Activations that the gradient of a layer needs, of every step: (T, B, ...) each."""

    last_hidden: Tensor  # (H)
    keys: Tensor  # (H)
    hidden: Tensor  # (H)
    logits: Tensor  # (N)
    probabilities: Tensor  # (N)
    attended: Tensor  # (2H) the hidden and the cell state that were read
    gates: Tensor  # (4H) after their nonlinearities
    normalised_gates: Tensor  # (4H)
    gate_deviation: Tensor  # (1)
    normalised_cell: Tensor  # (H)
    cell_deviation: Tensor  # (1)
    tanh_cell: Tensor  # (H)

    @classmethod
    def empty(cls, gates: Tensor, num_slots: int) -> Activations:
        """Memory for as many steps and rows as ``gates`` (T, B, 4H) has, allocated at once."""
        num_steps, num_rows, width = gates.shape
        size, slots = width // 4, num_slots
        sizes = (size, size, size, slots, slots, 2 * size, width, width, 1, size, 1, size)
        return cls(*(gates.new_empty(num_steps, num_rows, each) for each in sizes))

    def tensors(self) -> tuple[Tensor, ...]:
        """All tensors, in the order of the fields."""
        return tuple(getattr(self, one.name) for one in fields(self))


def slot_probabilities(logits: Tensor, log_weights: Tensor, epsilon: float) -> Tensor:
    """softmax(logits + log_weights) over the last dimension, zeros where all are closed.

    With ``epsilon``: e^x / (sum e^x + epsilon), where exponents are taken relative to the largest *logit*.
    """
    shifted = logits + log_weights
    largest = logits.amax(-1, keepdim=True) if epsilon else shifted.detach().amax(-1, keepdim=True)
    weights = (shifted - largest.masked_fill(largest.isinf(), 0.0)).exp()
    total = weights.sum(-1, keepdim=True) + epsilon
    return weights / total.masked_fill(total == 0, 1.0)


def slot_gradients(
    d_probabilities: Tensor, probabilities: Tensor, logits: Tensor, epsilon: float
) -> tuple[Tensor, Tensor]:
    """Gradients of ``slot_probabilities`` in the logits and in the log weights."""
    products = d_probabilities * probabilities
    total = products.sum(-1, keepdim=True)
    d_log_weights = torch.addcmul(products, probabilities, total, value=-1)
    if not epsilon:
        return d_log_weights, d_log_weights
    rest = 1 - probabilities.sum(-1, keepdim=True)  # the share of epsilon, which grows with the largest logit
    ties = logits == logits.amax(-1, keepdim=True)
    share = ties / ties.sum(-1, keepdim=True)
    return d_log_weights - share * (rest * total), d_log_weights


def normalise(values: Tensor, normalised: Tensor, deviation: Tensor) -> None:
    """Fill ``normalised`` (n, C) and ``deviation`` (n, 1), to which epsilon has been added, from values (n, C)."""
    # torch.var_mean takes several times as long as these passes together.
    torch.sub(values, values.mean(1, keepdim=True), out=normalised)
    torch.linalg.vector_norm(normalised, dim=1, keepdim=True, out=deviation)
    normalised.div_(deviation.div_((values.shape[1] - 1) ** 0.5).add_(EPSILON))


def normalise_backward(gradient: Tensor, normalised: Tensor, deviation: Tensor) -> None:
    """Turn the gradient of normalised vectors (n, C) into that of the values, in place."""
    bare = (deviation - EPSILON).clamp_min(torch.finfo(gradient.dtype).tiny).mul_(gradient.shape[1] - 1)
    along = (gradient * normalised).sum(1, keepdim=True) * deviation / bare
    gradient.sub_(gradient.mean(1, keepdim=True)).addcmul_(normalised, along, value=-1).div_(deviation)


class _Normalised(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor) -> Tensor:
        normalised, deviation = torch.empty_like(values), values.new_empty(len(values), 1)
        normalise(values, normalised, deviation)
        ctx.save_for_backward(normalised, deviation)
        return normalised

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        normalised, deviation = ctx.saved_tensors
        gradient = gradients[0].clone()
        normalise_backward(gradient, normalised, deviation)
        return gradient


def layer_norm(values: Tensor, gain: Tensor, shift: Tensor) -> Tensor:
    """LN of vectors (n, C), for all steps at once."""
    normalised: Tensor = _Normalised.apply(values)  # type: ignore[no-untyped-call]
    return torch.addcmul(shift, gain, normalised)


def apply_cell(state: Tensor, step: int, tape: Activations, gain: Tensor, shift: Tensor) -> None:
    """Fill ``state`` (B, 2H) from the step's gates, which come before their nonlinearities and leave after them."""
    size = gain.shape[0]
    gates = tape.gates[step]
    gates[:, : 3 * size].sigmoid_()
    tanh_into(gates[:, 3 * size :], gates[:, 3 * size :])
    i, f, o, g = gates.chunk(4, 1)
    cell = torch.mul(f, tape.attended[step, :, size:]).addcmul_(i, g)
    normalise(cell, tape.normalised_cell[step], tape.cell_deviation[step])
    tanh_cell = torch.addcmul(shift, gain, tape.normalised_cell[step], out=tape.tanh_cell[step])
    tanh_into(tanh_cell, tanh_cell)
    torch.mul(o, tanh_cell, out=state[:, :size])
    state[:, size:] = cell


def cell_backward(
    d_state: Tensor, step: int, tape: Activations, d_gates: Tensor, d_cell_norms: Tensor, gain: Tensor
) -> Tensor:
    """Fill the step's ``d_gates`` (before nonlinearities) and ``d_cell_norms``; returns d of the old cell (B, H)."""
    size = gain.shape[0]
    i, f, o, g = tape.gates[step].chunk(4, 1)
    d_i, d_f, d_o, d_g = d_gates[step].chunk(4, 1)
    d_hidden, tanh_cell = d_state[:, :size], tape.tanh_cell[step]
    torch.ops.aten.tanh_backward.grad_input(d_hidden * o, tanh_cell, grad_input=d_cell_norms[step])
    d_cell = d_cell_norms[step] * gain
    normalise_backward(d_cell, tape.normalised_cell[step], tape.cell_deviation[step])
    d_cell += d_state[:, size:]
    torch.mul(d_cell, g, out=d_i)
    torch.mul(d_cell, tape.attended[step, :, size:], out=d_f)
    torch.mul(d_hidden, tanh_cell, out=d_o)
    torch.mul(d_cell, i, out=d_g)
    sigmoids = d_gates[step, :, : 3 * size]
    torch.ops.aten.sigmoid_backward.grad_input(sigmoids, tape.gates[step, :, : 3 * size], grad_input=sigmoids)
    torch.ops.aten.tanh_backward.grad_input(d_g, g, grad_input=d_g)
    return d_cell * f
