"""A layer of the reading network over all steps in one sweep, with a hand-written gradient (Eqs. 9-12).

A step first attends to the states of slots, some of which may be closed; if all are, it attends to nothing. Then
follows an LSTM cell with layer normalisation (Ba et al. 2016), with gates in the order i, f, o, g:

    s = attention of the key over the N states before      [h~; c~] = sum over slots i of s_i [h_i; c_i]
    gates = LN(W_x x + b_x) + LN(W_h h~ + b_h)             c' = f c~ + i g;    h' = o tanh(LN(c'))

The norm divides by the unbiased standard deviation + 1e-6, as the code that was released with PRPN does.

The states of a layer are stored in one tape (B, N + T, 2H), with hidden and cell states side by side, and the N states
before this segment first. The states to which a step may attend are a view of N consecutive ones, so nothing is shifted
or copied. Gradients of weights are formed after the loop, by one product each. Shapes: T steps, B rows, N slots, H
hidden units.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from treelm.models.layers.lstm import tanh_into
from treelm.models.layers.packed_weights import PackedWeight
from treelm.models.layers.precision import column_sums, operand, product, small_products

EPSILON = 1e-6


class Activations(NamedTuple):
    """What the gradient of a layer needs, of every step: (T, B, ...) each."""

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
        """Allocate memory for all steps and rows of ``gates`` (T, B, 4H)."""
        num_steps, num_rows, width = gates.shape
        size, slots = width // 4, num_slots
        sizes = (size, size, size, slots, slots, 2 * size, width, width, 1, size, 1, size)
        return cls(*(gates.new_empty(num_steps, num_rows, each) for each in sizes))


def slot_probabilities(logits: Tensor, log_weights: Tensor, epsilon: float) -> Tensor:
    """softmax(logits + log_weights) over slots, the last dimension; zeros if all slots are closed.

    With ``epsilon`` it is e^x / (sum e^x + epsilon), where x is relative to the largest *logit*.
    """
    shifted = logits + log_weights
    largest = logits.amax(-1, keepdim=True) if epsilon else shifted.detach().amax(-1, keepdim=True)
    weights = (shifted - largest.masked_fill(largest.isinf(), 0.0)).exp()
    total = weights.sum(-1, keepdim=True) + epsilon
    return weights / total.masked_fill(total == 0, 1.0)


def slot_gradients(
    d_probabilities: Tensor, probabilities: Tensor, logits: Tensor, epsilon: float
) -> tuple[Tensor, Tensor]:
    """The gradients of ``slot_probabilities`` by the logits and by the log weights."""
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
    """Normalise values (n, C): fills ``normalised`` (n, C) and ``deviation`` (n, 1), which includes epsilon."""
    # torch.var_mean takes several times as long as these passes together.
    torch.sub(values, values.mean(1, keepdim=True), out=normalised)
    torch.linalg.vector_norm(normalised, dim=1, keepdim=True, out=deviation)
    normalised.div_(deviation.div_((values.shape[1] - 1) ** 0.5).add_(EPSILON))


def bare_deviation(deviation: Tensor, size: int) -> Tensor:
    """``deviation`` (..., 1) of vectors of ``size`` numbers, without epsilon, times size - 1."""
    return (deviation - EPSILON).clamp_min(torch.finfo(deviation.dtype).tiny).mul_(size - 1)


def normalise_backward(gradient: Tensor, normalised: Tensor, deviation: Tensor, bare: Tensor) -> None:
    """Replace the gradient by normalised vectors (n, C) by the gradient by the values.

    ``bare`` is that of ``bare_deviation``.
    """
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
        normalise_backward(gradient, normalised, deviation, bare_deviation(deviation, gradient.shape[1]))
        return gradient


def layer_norm(values: Tensor, gain: Tensor, shift: Tensor) -> Tensor:
    """LN(values) of vectors (n, C), with its gradient."""
    normalised: Tensor = _Normalised.apply(values)  # type: ignore[no-untyped-call]
    return torch.addcmul(shift, gain, normalised)


def apply_cell(state: Tensor, step: int, tape: Activations, gain: Tensor, shift: Tensor) -> None:
    """Fill ``state`` (B, 2H) from the step's gates, to which nonlinearities are applied in place."""
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
    d_state: Tensor, step: int, tape: Activations, bare: Tensor, d_gates: Tensor, d_cell_norms: Tensor, gain: Tensor
) -> Tensor:
    """Fill the step's ``d_gates``, by the gates before nonlinearities, and ``d_cell_norms``, by LN(c').

    ``d_state`` (B, 2H) is the gradient by the new state; returns the gradient by the old cell state (B, H).
    """
    size = gain.shape[0]
    i, f, o, g = tape.gates[step].chunk(4, 1)
    d_i, d_f, d_o, d_g = d_gates[step].chunk(4, 1)
    d_hidden, tanh_cell = d_state[:, :size], tape.tanh_cell[step]
    torch.ops.aten.tanh_backward.grad_input(d_hidden * o, tanh_cell, grad_input=d_cell_norms[step])
    d_cell = d_cell_norms[step] * gain
    normalise_backward(d_cell, tape.normalised_cell[step], tape.cell_deviation[step], bare)
    d_cell += d_state[:, size:]
    torch.mul(d_cell, g, out=d_i)
    torch.mul(d_cell, tape.attended[step, :, size:], out=d_f)
    torch.mul(d_hidden, tanh_cell, out=d_o)
    torch.mul(d_cell, i, out=d_g)
    sigmoids = d_gates[step, :, : 3 * size]
    torch.ops.aten.sigmoid_backward.grad_input(sigmoids, tape.gates[step, :, : 3 * size], grad_input=sigmoids)
    torch.ops.aten.tanh_backward.grad_input(d_g, g, grad_input=d_g)
    return d_cell * f


class OpenSlots(NamedTuple):
    """Which slots are open, as what attention adds to its logits at every step."""

    log_weights: Tensor  # (T, B, N), added to the logits; -inf where a slot is closed
    epsilon: float = 0.0  # added to the sum of exp(logit - largest logit) that the softmax divides by


class LayerMasks(NamedTuple):
    """Dropout masks; None: no dropout."""

    last_hidden: Tensor | None = None  # (T, B, H), of h_{t-1} before it becomes a key
    keys: Tensor | None = None  # (T, B, H)
    recurrent: Tensor | None = None  # (H,), of the attended hidden state


_NUM_MASKS = len(LayerMasks._fields)


class ReadingSweep(torch.autograd.Function):
    """All steps of a layer: returns the tape of states (B, N + T, 2H), in a tuple of one.

    ``inputs`` (T, B, 4H) is LN(W_x x + b_x), ``key_inputs`` (T, B, H) the part of the key that depends on inputs, or
    None without attention, and ``memory`` (B, N, 2H) the states before. Then follow the weights: that of the key (H,
    H), the recurrent one (4H, H) with its bias, gain and shift of the norms of gates and of cell states.
    ``log_weights`` and ``epsilon`` are those of ``OpenSlots``, ``masks`` those of ``LayerMasks``.
    """

    @staticmethod
    def forward(
        ctx: Any,
        inputs: Tensor,
        key_inputs: Tensor | None,
        log_weights: Tensor | None,
        memory: Tensor,
        key_weight: Tensor | None,
        weight: Tensor,
        bias: Tensor,
        gate_gain: Tensor,
        gate_shift: Tensor,
        cell_gain: Tensor,
        cell_shift: Tensor,
        epsilon: float,
        *masks: Tensor | None,
    ) -> tuple[Tensor]:
        """Compute step by step, and store what the gradient needs."""
        num_slots, num_rows, dropped = memory.shape[1], memory.shape[0], LayerMasks(*masks)
        states = torch.cat([memory, memory.new_empty(num_rows, len(inputs), memory.shape[2])], 1)
        tape = Activations.empty(inputs, num_slots)
        recurrent = PackedWeight(operand(weight), num_rows)
        keys = None if key_weight is None else PackedWeight(operand(key_weight), num_rows)
        terms = None if log_weights is None else OpenSlots(log_weights, epsilon)
        with small_products(weight.device):
            for step, (gates, normalised) in enumerate(zip(tape.gates, tape.normalised_gates, strict=True)):
                window = states[:, step : step + num_slots]
                if keys is None or key_inputs is None or terms is None:
                    tape.attended[step] = window[:, -1]
                else:
                    _attend(step, window, tape, keys, key_inputs, terms, dropped)
                _masked_into(tape.hidden[step], tape.attended[step, :, : weight.shape[1]], dropped.recurrent)
                recurrent.multiply_into(gates, tape.hidden[step], bias=bias)
                normalise(gates, normalised, tape.gate_deviation[step])
                torch.addcmul(gate_shift, gate_gain, normalised, out=gates)
                gates += inputs[step]
                apply_cell(states[:, step + num_slots], step, tape, cell_gain, cell_shift)
        ctx.save_for_backward(states, key_weight, weight, gate_gain, cell_gain, *dropped, *tape)
        ctx.epsilon, ctx.dtype = epsilon, operand(weight[:0]).dtype
        return (states,)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """The gradients by all tensors that ``forward`` has taken."""
        _, key_weight, weight, _, _, *saved = ctx.saved_tensors
        tape = Activations(*saved[_NUM_MASKS:])
        run = _Backward(ctx, tape, gradients[0].clone())
        with small_products(weight.device):
            for step in range(len(tape.gates) - 1, -1, -1):
                run.step(step)
        d_gates, d_products = run.d_gates.flatten(0, 1), run.d_products.flatten(0, 1)
        d_weight = product(d_products.to(ctx.dtype).T, tape.hidden.flatten(0, 1).to(ctx.dtype), like=weight)
        d_key_weight = None
        if key_weight is not None:
            d_keys, last_hidden = run.d_keys.flatten(0, 1), tape.last_hidden.flatten(0, 1)
            d_key_weight = product(d_keys.to(ctx.dtype).T, last_hidden.to(ctx.dtype), like=key_weight)
        attends = key_weight is not None
        return (
            run.d_gates,
            run.d_keys if attends else None,
            run.d_log_weights if attends else None,
            run.d_states[:, : tape.logits.shape[2]],
            d_key_weight,
            d_weight,
            column_sums(d_products),
            column_sums(d_gates * tape.normalised_gates.flatten(0, 1)),
            column_sums(d_gates),
            column_sums(run.d_cell_norms * tape.normalised_cell),
            column_sums(run.d_cell_norms),
            None,
            *[None] * _NUM_MASKS,
        )


def _masked_into(out: Tensor, values: Tensor, mask: Tensor | None) -> None:
    out.copy_(values) if mask is None else torch.mul(values, mask, out=out)


def _attend(
    step: int,
    window: Tensor,
    tape: Activations,
    keys: PackedWeight,
    key_inputs: Tensor,
    terms: OpenSlots,
    masks: LayerMasks,
) -> None:
    """Attention of one step (Eqs. 9-12): fills its key, logits, probabilities and attended states."""
    size = window.shape[2] // 2
    last, key = tape.last_hidden[step], tape.keys[step]
    _masked_into(last, window[:, -1, :size], None if masks.last_hidden is None else masks.last_hidden[step])
    keys.multiply_into(key, last, bias=key_inputs[step])
    if masks.keys is not None:
        key *= masks.keys[step]
    logits = torch.bmm(key[:, None], window[:, :, :size].transpose(1, 2))[:, 0] / math.sqrt(size)
    probabilities = slot_probabilities(logits, terms.log_weights[step], terms.epsilon)
    tape.logits[step], tape.probabilities[step] = logits, probabilities
    tape.attended[step] = torch.bmm(probabilities[:, None], window)[:, 0]


class _Backward:
    """The gradient, step by step from the last one; sums over steps are made afterwards."""

    def __init__(self, ctx: Any, tape: Activations, d_states: Tensor) -> None:
        """Take what the forward pass has stored, and allocate all gradients."""
        self.states, key_weight, weight, self.gate_gain, self.cell_gain, *saved = ctx.saved_tensors
        self.masks = LayerMasks(*saved[:_NUM_MASKS])
        self.tape, self.epsilon, self.d_states = tape, ctx.epsilon, d_states
        self.num_slots, self.size = self.tape.logits.shape[2], weight.shape[1]
        num_rows = len(self.states)
        self.bare_gates = bare_deviation(tape.gate_deviation, tape.gates.shape[2])
        self.bare_cell = bare_deviation(tape.cell_deviation, tape.normalised_cell.shape[2])
        self.recurrent = PackedWeight(weight.to(ctx.dtype).T, num_rows)
        self.keys = None if key_weight is None else PackedWeight(key_weight.to(ctx.dtype).T, num_rows)
        self.d_gates, self.d_products = torch.empty_like(self.tape.gates), torch.empty_like(self.tape.gates)
        self.d_cell_norms, self.d_keys = torch.empty_like(self.tape.hidden), torch.empty_like(self.tape.hidden)
        self.d_log_weights = torch.empty_like(self.tape.logits)
        self.d_attended = torch.empty_like(self.tape.attended[0])

    def step(self, step: int) -> None:
        """Compute the gradients of one step, and add its part to those of earlier states."""
        tape, size, window = self.tape, self.size, slice(step, step + self.num_slots)
        d_state, filled = self.d_states[:, step + self.num_slots], (self.d_gates, self.d_cell_norms)
        d_cell = cell_backward(d_state, step, tape, self.bare_cell[step], *filled, self.cell_gain)
        torch.mul(self.d_gates[step], self.gate_gain, out=self.d_products[step])
        normalise_backward(
            self.d_products[step], tape.normalised_gates[step], tape.gate_deviation[step], self.bare_gates[step]
        )
        d_hidden = self.d_attended[:, :size]
        self.recurrent.multiply_into(d_hidden, self.d_products[step])
        if self.masks.recurrent is not None:
            d_hidden *= self.masks.recurrent
        self.d_attended[:, size:] = d_cell
        if self.keys is None:
            self.d_states[:, step + self.num_slots - 1] += self.d_attended
        else:
            self._attention(step, window, self.keys)

    def _attention(self, step: int, window: slice, keys: PackedWeight) -> None:
        tape, size, states = self.tape, self.size, self.states[:, window]
        probabilities, key = tape.probabilities[step], tape.keys[step]
        d_attention = torch.bmm(self.d_attended[:, None], states.transpose(1, 2))[:, 0]
        d_logits, d_log_weights = slot_gradients(d_attention, probabilities, tape.logits[step], self.epsilon)
        self.d_log_weights[step] = d_log_weights
        d_logits = d_logits / math.sqrt(size)
        d_key = self.d_keys[step]
        d_key.copy_(torch.bmm(d_logits[:, None], states[:, :, :size])[:, 0])
        if self.masks.keys is not None:
            d_key *= self.masks.keys[step]
        d_window = self.d_states[:, window]
        d_window.addcmul_(probabilities[:, :, None], self.d_attended[:, None])
        d_window[:, :, :size].addcmul_(d_logits[:, :, None], key[:, None])
        d_last = torch.empty_like(key)
        keys.multiply_into(d_last, d_key)
        if self.masks.last_hidden is not None:
            d_last *= self.masks.last_hidden[step]
        self.d_states[:, window.stop - 1, :size] += d_last
