"""The reading network: LSTM layers whose recurrence attends to earlier states (Eqs. 9-12, Shen et al. 2018).

A layer runs over all steps in one sweep, forward and backward by hand. Its states stand in one tape: (B, N + T, 2H),
hidden and cell states side by side, first the N states before this segment. What a step may attend to is a view of N
consecutive states, so nothing is shifted or copied. Gradients of weights are formed after the loop, one product each.
Shapes: T steps, B rows, N slots, H hidden units.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from treelm.models.layers.dropout import dropout, dropout_mask
from treelm.models.layers.graphs import GraphedFunction
from treelm.models.layers.packed import PackedWeight
from treelm.models.layers.precision import column_sums, linear, operand, product, small_products
from treelm.models.prpn.cell import (
    Activations,
    apply_cell,
    cell_backward,
    layer_norm,
    normalise,
    normalise_backward,
    slot_gradients,
    slot_probabilities,
)
from treelm.models.prpn.config import PRPNConfig
from treelm.models.prpn.parsing import OpenSlots


class LayerMasks(NamedTuple):
    """Dropout masks; None: no dropout."""

    last_hidden: Tensor | None = None  # (T, B, H), of h_{t-1} before it becomes a key
    keys: Tensor | None = None  # (T, B, H)
    recurrent: Tensor | None = None  # (H,), of the attended hidden state


_NUM_MASKS = len(LayerMasks._fields)


class GainedNorm(nn.Module):
    """The gain and the shift of a layer norm."""

    def __init__(self, size: int) -> None:
        """Start as plain normalisation."""
        super().__init__()
        self.gain = nn.Parameter(torch.ones(size))
        self.shift = nn.Parameter(torch.zeros(size))


class ReadingLayer(nn.Module):
    """One layer. ``forward`` hoists what depends on inputs alone; ``ReadingSweep`` does the rest.

    key_t = Drop(W_x^k Drop(x_t) + W_h^k Drop(h_{t-1}) + b^k); [h~; c~] = sum over slots of s [h; c] with
    s = attention(key . h / sqrt(H)), one weight for h and c; then the cell on x_t and h~, c~ (see ``cell``).
    """

    def __init__(self, config: PRPNConfig, input_size: int, input_dropout: float) -> None:
        """Draw the weights as linear layers do."""
        super().__init__()
        size = config.hidden_size
        self.config = config
        self.input_dropout = input_dropout
        self.input = nn.Linear(input_size, 4 * size)
        self.recurrent = nn.Linear(size, 4 * size)
        self.input_norm, self.recurrent_norm = GainedNorm(4 * size), GainedNorm(4 * size)
        self.cell_norm = GainedNorm(size)
        self.key_input = self.key_hidden = None
        if config.read_attention:
            self.key_input, self.key_hidden = nn.Linear(input_size, size), nn.Linear(size, size, bias=False)
            for parameter in (*self.key_input.parameters(), *self.key_hidden.parameters()):
                nn.init.uniform_(parameter, -((input_size + size) ** -0.5), (input_size + size) ** -0.5)
        self._sweep = GraphedFunction(ReadingSweep.apply)

    def forward(self, inputs: Tensor, memory: Tensor, slots: OpenSlots | None) -> Tensor:
        """inputs (T, B, I), the N states before (B, N, 2H) -> all states (B, N + T, 2H).

        ``slots`` may be None if there is no attention.
        """
        num_steps, num_rows, _ = inputs.shape
        dropped = dropout(inputs, self.input_dropout, training=self.training).flatten(0, 1)
        projected = linear(dropped, self.input.weight, self.input.bias, whole=True)
        gates = layer_norm(projected, self.input_norm.gain, self.input_norm.shift).view(num_steps, num_rows, -1)
        key_inputs = key_weight = log_weights = factors = None
        if self.key_input is not None and self.key_hidden is not None and slots is not None:
            key_inputs = self._key_inputs(inputs, self.key_input.weight, self.key_input.bias)
            key_weight, log_weights, factors = self.key_hidden.weight, slots.log_weights, slots.factors
        norms = self.recurrent_norm, self.cell_norm
        (states,) = self._sweep(
            gates,
            key_inputs,
            log_weights,
            factors,
            memory,
            key_weight,
            self.recurrent.weight,
            self.recurrent.bias,
            *(parameter for norm in norms for parameter in (norm.gain, norm.shift)),
            0.0 if slots is None else slots.epsilon,
            *self._masks(gates),
        )
        return states

    def _key_inputs(self, inputs: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        dropped = dropout(inputs, self.config.layer_dropout, training=self.training).flatten(0, 1)
        return linear(dropped, weight, bias, whole=True).view(*inputs.shape[:2], -1)

    def _masks(self, like: Tensor) -> LayerMasks:
        if not self.training:
            return LayerMasks()
        (num_steps, num_rows, _), size = like.shape, self.config.hidden_size
        last_hidden = keys = recurrent = None
        if self.config.layer_dropout and self.key_input is not None:
            last_hidden, keys = (
                dropout_mask(num_steps * num_rows, size, self.config.layer_dropout, like).view(num_steps, num_rows, -1)
                for _ in range(2)
            )
        if self.config.recurrent_dropout:
            recurrent = dropout_mask(1, size, self.config.recurrent_dropout, like, shared=True)[0]
        return LayerMasks(last_hidden=last_hidden, keys=keys, recurrent=recurrent)


class ReadingSweep(torch.autograd.Function):
    """(gates, key inputs, slot terms, memory, weights, dropout masks) -> the tape of states, alone in a tuple.

    ``inputs`` (T, B, 4H) is LN(W_x x + b), ``key_inputs`` (T, B, H) the input's part of the key; None when there is no
    attention. Weights: key (H, H), recurrent (4H, H) and its bias, gain and bias of both norms. ``masks`` are those of
    ``LayerMasks``, ``epsilon`` that of ``OpenSlots``.
    """

    @staticmethod
    def forward(
        ctx: Any,
        inputs: Tensor,
        key_inputs: Tensor | None,
        log_weights: Tensor | None,
        factors: Tensor | None,
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
        """Step by step; keeps a tape of what the gradient needs."""
        num_slots, num_rows, dropped = memory.shape[1], memory.shape[0], LayerMasks(*masks)
        states = torch.cat([memory, memory.new_empty(num_rows, len(inputs), memory.shape[2])], 1)
        tape = Activations.empty(inputs, num_slots)
        recurrent = PackedWeight(operand(weight), num_rows)
        keys = None if key_weight is None else PackedWeight(operand(key_weight), num_rows)
        terms = None if log_weights is None else OpenSlots(log_weights=log_weights, factors=factors, epsilon=epsilon)
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
        ctx.save_for_backward(states, key_weight, weight, gate_gain, cell_gain, factors, *dropped, *tape.tensors())
        ctx.epsilon, ctx.dtype = epsilon, operand(weight[:0]).dtype
        return (states,)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """The gradients of all tensors that ``forward`` was given."""
        _, key_weight, weight, _, _, factors, *saved = ctx.saved_tensors
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
            run.d_factors if factors is not None else None,
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
    """Eqs. 9-12: fills the step's key, logits, probabilities and what it attends to."""
    size = window.shape[2] // 2
    last, key = tape.last_hidden[step], tape.keys[step]
    _masked_into(last, window[:, -1, :size], None if masks.last_hidden is None else masks.last_hidden[step])
    keys.multiply_into(key, last, bias=key_inputs[step])
    if masks.keys is not None:
        key *= masks.keys[step]
    logits = torch.bmm(key[:, None], window[:, :, :size].transpose(1, 2))[:, 0] / math.sqrt(size)
    probabilities = slot_probabilities(logits, terms.log_weights[step], terms.epsilon)
    tape.logits[step], tape.probabilities[step] = logits, probabilities
    attention = probabilities if terms.factors is None else probabilities * terms.factors[step]
    tape.attended[step] = torch.bmm(attention[:, None], window)[:, 0]


class _Backward:
    """The gradient, step by step from the last one; all sums over steps are left for later."""

    def __init__(self, ctx: Any, tape: Activations, d_states: Tensor) -> None:
        """Take what the forward pass saved, and allocate all gradients."""
        self.states, key_weight, weight, self.gate_gain, self.cell_gain, self.factors, *saved = ctx.saved_tensors
        self.tape, self.masks, self.epsilon, self.d_states = (
            tape,
            LayerMasks(*saved[:_NUM_MASKS]),
            ctx.epsilon,
            d_states,
        )
        self.num_slots, self.size = self.tape.logits.shape[2], weight.shape[1]
        num_rows = len(self.states)
        self.recurrent = PackedWeight(weight.to(ctx.dtype).T, num_rows)
        self.keys = None if key_weight is None else PackedWeight(key_weight.to(ctx.dtype).T, num_rows)
        self.d_gates, self.d_products = torch.empty_like(self.tape.gates), torch.empty_like(self.tape.gates)
        self.d_cell_norms, self.d_keys = torch.empty_like(self.tape.hidden), torch.empty_like(self.tape.hidden)
        self.d_log_weights = torch.empty_like(self.tape.logits)
        self.d_factors = torch.empty_like(self.tape.logits)
        self.d_attended = torch.empty_like(self.tape.attended[0])

    def step(self, step: int) -> None:
        """Compute all gradients of one step, and their part in those of earlier states."""
        tape, size, window = self.tape, self.size, slice(step, step + self.num_slots)
        d_cell = cell_backward(
            self.d_states[:, step + self.num_slots], step, tape, self.d_gates, self.d_cell_norms, self.cell_gain
        )
        torch.mul(self.d_gates[step], self.gate_gain, out=self.d_products[step])
        normalise_backward(self.d_products[step], tape.normalised_gates[step], tape.gate_deviation[step])
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
        attention = probabilities
        if self.factors is not None:
            attention = probabilities * self.factors[step]
            self.d_factors[step] = d_attention * probabilities
            d_attention = d_attention * self.factors[step]
        d_logits, d_log_weights = slot_gradients(d_attention, probabilities, tape.logits[step], self.epsilon)
        self.d_log_weights[step] = d_log_weights
        d_logits = d_logits / math.sqrt(size)
        d_key = self.d_keys[step]
        d_key.copy_(torch.bmm(d_logits[:, None], states[:, :, :size])[:, 0])
        if self.masks.keys is not None:
            d_key *= self.masks.keys[step]
        d_window = self.d_states[:, window]
        d_window.addcmul_(attention[:, :, None], self.d_attended[:, None])
        d_window[:, :, :size].addcmul_(d_logits[:, :, None], key[:, None])
        d_last = torch.empty_like(key)
        keys.multiply_into(d_last, d_key)
        if self.masks.last_hidden is not None:
            d_last *= self.masks.last_hidden[step]
        self.d_states[:, window.stop - 1, :size] += d_last
