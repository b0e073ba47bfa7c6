"""Recurrent layers over sequences, with a hand-written gradient, and the dropouts of AWD-LSTM (Merity et al. 2018).

Shapes: T steps, B rows, G gates, I and H sizes of a layer's input and state.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from treelm.models.layers.devices import few_calls
from treelm.models.layers.dropout import dropout, dropout_mask
from treelm.models.layers.few_calls import library_lstm, library_weights
from treelm.models.layers.graphs import GraphedFunction, graphs_wanted
from treelm.models.layers.lstm import GateWeights, LSTMWeights, lstm_cell_gradient_into, lstm_cell_into
from treelm.models.layers.packed_weights import PackedWeight
from treelm.models.layers.precision import column_sums, multiply_into, operand, product, rounds_on_gpu

State = tuple[Tensor, Tensor]
"""Hidden and cell state, (B, H) each."""
Tape = tuple[Tensor, ...]
"""What the gradient of a cell needs, of all steps (T, B, ...) or of one (B, ...); the first is the G gates."""


class RecurrentCell(ABC):
    """One step of a recurrent layer, from the gates on, and its gradient, both in place."""

    @abstractmethod
    def tape(self, gates: Tensor, size: int) -> Tape:
        """The tape of all steps, which begins with ``gates`` (T, B, G); ``size`` is H."""

    @abstractmethod
    def step_into(self, step: Tape, cell_before: Tensor, cell: Tensor, hidden: Tensor) -> None:
        """Fill ``cell``, ``hidden`` (B, H) and the tape of a step, whose gates are given before their nonlinearity."""

    @abstractmethod
    def gradient_into(self, d_gates: Tensor, d_cell: Tensor, d_hidden: Tensor, step: Tape, cell_before: Tensor) -> None:
        """Fill ``d_gates`` (B, G), by the gates before their nonlinearity.

        ``d_cell`` (B, H) is given as the gradient by the new cell state, and becomes that by the old one.
        """

    def findings(self, tape: Tape) -> tuple[Tensor, ...]:
        """Further results of all steps, without gradient; by default none."""
        return ()

    def bias_gradient(self, d_gates: Tensor) -> Tensor:
        """The sum over steps and rows: (T, B, G) -> (G,)."""
        return column_sums(d_gates)


class RecurrentLayer(nn.Module):
    """One layer of a cell over T steps."""

    def __init__(self, weights: GateWeights, cell: RecurrentCell) -> None:
        """The weights become parameters of the layer."""
        super().__init__()
        self.weights = weights
        self._cell, self._run = cell, GraphedFunction(_Recurrence.apply)

    def run(
        self, inputs: Tensor, state: State, weight_hidden: Tensor | None = None
    ) -> tuple[Tensor, State, Sequence[Tensor]]:
        """inputs (T, B, I) and the state before -> outputs (T, B, H), the state after, and the cell's ``findings``.

        ``weight_hidden`` (G, H) replaces the recurrent weight, for example with dropout. Products are computed in the
        current ``matmul_precision``. There is no second derivative.
        """
        weights = self.weights
        recurrent = weights.weight_hidden if weight_hidden is None else weight_hidden
        outputs, cell, *found = self._run(self._cell, inputs, *state, weights.weight_input, recurrent, weights.bias)
        return outputs, (outputs[-1], cell), found


class _Recurrence(torch.autograd.Function):
    """All steps. Products with inputs, and gradients of weights, are one product each, before or after the steps."""

    @staticmethod
    def forward(
        ctx: Any,
        arithmetic: RecurrentCell,
        inputs: Tensor,  # (T, B, I)
        hidden: Tensor,  # (B, H)
        cell: Tensor,  # (B, H)
        weight_input: Tensor,  # (G, I)
        weight_hidden: Tensor,  # (G, H)
        bias: Tensor,
    ) -> tuple[Tensor, ...]:
        num_steps, num_rows, size = *inputs.shape[:2], hidden.shape[1]
        weights = operand(weight_input), operand(weight_hidden)
        flat = inputs.flatten(0, 1).to(weights[0].dtype)
        gates = bias.new_empty(num_steps, num_rows, len(bias))
        multiply_into(gates.flatten(0, 1), flat, weights[0].T, bias=bias, whole=True)
        multiply = PackedWeight(weights[1], num_rows)
        hiddens, cells = (bias.new_empty(num_steps + 1, num_rows, size) for _ in range(2))
        hiddens[0], cells[0] = hidden, cell
        multiplied = hiddens.to(weights[1].dtype)  # the same tensor, unless the precision is another
        tape = arithmetic.tape(gates, size)
        for t, step in enumerate(_steps(tape)):
            step[0].add_(multiply(multiplied[t]))
            arithmetic.step_into(step, cells[t], cells[t + 1], hiddens[t + 1])
            if multiplied is not hiddens:
                multiplied[t + 1] = hiddens[t + 1]
        ctx.arithmetic = arithmetic
        ctx.save_for_backward(flat, multiplied, cells, *weights, *tape)
        found = arithmetic.findings(tape)
        ctx.mark_non_differentiable(*found)
        return hiddens[1:], cells[-1], *found

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        flat, multiplied, cells, weight_input, weight_hidden, *tape = ctx.saved_tensors
        d_outputs, d_cell = gradients[0], gradients[1].clone()
        multiply = PackedWeight(weight_hidden.T, cells.shape[1])
        d_gates = torch.empty_like(tape[0])
        d_multiplied = d_gates.to(weight_hidden.dtype)
        d_hidden = torch.zeros_like(cells[0])
        for t, step in reversed(list(enumerate(_steps(tape)))):
            d_hidden = d_outputs[t] + d_hidden
            ctx.arithmetic.gradient_into(d_gates[t], d_cell, d_hidden, step, cells[t])
            if d_multiplied is not d_gates:
                d_multiplied[t] = d_gates[t]
            d_hidden = multiply(d_multiplied[t])
        d_flat = d_multiplied.flatten(0, 1)
        d_inputs = product(d_flat, weight_input, like=d_gates).view(*d_gates.shape[:2], -1)
        d_weight_input = product(d_flat.T, flat, like=d_gates)
        d_weight_hidden = product(d_flat.T, multiplied[:-1].flatten(0, 1), like=d_gates)
        d_bias = ctx.arithmetic.bias_gradient(d_gates)
        return None, d_inputs, d_hidden.to(d_cell.dtype), d_cell, d_weight_input, d_weight_hidden, d_bias


def _steps(tape: Sequence[Tensor]) -> list[Tape]:
    return list(zip(*(tensor.unbind() for tensor in tape), strict=True))


class _LSTMCell(RecurrentCell):
    def tape(self, gates: Tensor, size: int) -> Tape:
        return gates, gates.new_empty(*gates.shape[:2], size)

    def step_into(self, step: Tape, cell_before: Tensor, cell: Tensor, hidden: Tensor) -> None:
        gates, tanh_cell = step
        lstm_cell_into(gates, cell_before, cell, tanh_cell, hidden)

    def gradient_into(self, d_gates: Tensor, d_cell: Tensor, d_hidden: Tensor, step: Tape, cell_before: Tensor) -> None:
        gates, tanh_cell = step
        lstm_cell_gradient_into(d_gates, d_cell, d_hidden, gates, cell_before, tanh_cell)
        d_cell *= gates[:, d_cell.shape[1] : 2 * d_cell.shape[1]]

    def bias_gradient(self, d_gates: Tensor) -> Tensor:
        return d_gates.sum((0, 1))


_LSTM_CELL = _LSTMCell()


class LSTMLayer(RecurrentLayer):
    """One LSTM layer over T steps; on a GPU it is cuDNN's, unless steps are captured as CUDA graphs."""

    def __init__(self, input_size: int, hidden_size: int) -> None:
        """Draw the weights as ``LSTMWeights`` does."""
        super().__init__(LSTMWeights(input_size, hidden_size), _LSTM_CELL)

    def forward(self, inputs: Tensor, state: State, *, weight_hidden: Tensor | None = None) -> tuple[Tensor, State]:
        """inputs (T, B, I) and the state before -> outputs (T, B, H) and the state after; see ``run``."""
        recurrent = self.weights.weight_hidden if weight_hidden is None else weight_hidden
        if few_calls(inputs.device) and not graphs_wanted():
            with torch.backends.cudnn.flags(enabled=True, allow_tf32=rounds_on_gpu()):
                return fused_lstm(inputs, state, self.weights, recurrent)
        outputs, after, _ = self.run(inputs, state, recurrent)
        return outputs, after


def fused_lstm(inputs: Tensor, state: State, weights: GateWeights, recurrent: Tensor) -> tuple[Tensor, State]:
    """The layer as torch's own operator computes it: on a GPU one call for all steps instead of about ten for each."""
    parameters = library_weights((weights.weight_input, recurrent, weights.bias), as_operands=False)
    hidden, cell = state
    outputs, hidden, cell = library_lstm(inputs, (hidden[None], cell[None]), parameters)
    return outputs, (hidden[0], cell[0])


def locked_dropout(units: Tensor, probability: float, *, training: bool) -> Tensor:
    """Zero units of (T, B, D) by one mask (B, D) for all steps and scale up the others, in training only."""
    if not training or probability == 0:
        return units
    return units * dropout_mask(units.shape[1], units.shape[2], probability, units)


def embed_with_dropout(tokens: Tensor, table: Tensor, probability: float, *, training: bool) -> Tensor:
    """Rows of the table (V, E) for tokens of any shape; in training, whole tokens are zeroed, wherever they occur."""
    vectors = functional.embedding(tokens, table)
    if not training or probability == 0:
        return vectors
    return vectors * functional.embedding(tokens, dropout_mask(len(table), 1, probability, table, shared=True))


class LSTMStack(nn.Module):
    """LSTM layers on top of each other, with the dropouts of AWD-LSTM.

    Dropout is applied to recurrent weights when they are used; the parameters themselves do not change.
    """

    def __init__(
        self,
        sizes: Sequence[int],
        *,
        between: float = 0.0,
        output: float = 0.0,
        weight: float = 0.0,
        locked: bool = True,
    ) -> None:
        """``sizes`` are those of the input and of every layer's output.

        ``between``, ``output`` and ``weight`` are rates of dropout: of units between layers, of units of the last
        layer, and of elements of recurrent weights (DropConnect, with one mask a call). If ``locked``, one mask of
        units serves for all steps; else each step has its own.
        """
        super().__init__()
        self.layers = nn.ModuleList(LSTMLayer(size, following) for size, following in pairwise(sizes))
        self.between, self.output, self.weight, self.locked = between, output, weight, locked

    def begin(self, num_rows: int, like: Tensor) -> dict[str, Tensor]:
        """The zero state of every layer, (B, H) each, named ``hidden.0``, ``cell.0`` and so on."""
        state: dict[str, Tensor] = {}
        for index in range(len(self.layers)):
            size = self._layer(index).weights.hidden_size
            state[f"hidden.{index}"] = like.new_zeros(num_rows, size)
            state[f"cell.{index}"] = like.new_zeros(num_rows, size)
        return state

    def run_layer(self, index: int, inputs: Tensor, carried: Mapping[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        """inputs (T, B, I) -> outputs (T, B, H) of one layer before dropout, and its new entries of ``carried``."""
        layer = self._layer(index)
        weight = dropout(layer.weights.weight_hidden, self.weight, training=self.training, shared=True)
        before = (carried[f"hidden.{index}"], carried[f"cell.{index}"])
        outputs, (hidden, cell) = layer(inputs, before, weight_hidden=weight)
        return outputs, {f"hidden.{index}": hidden, f"cell.{index}": cell}

    def drop_after(self, index: int, outputs: Tensor) -> Tensor:
        """The outputs (T, B, H) of a layer after the dropout that follows it."""
        rate = self.output if index == len(self.layers) - 1 else self.between
        drop = locked_dropout if self.locked else dropout
        return drop(outputs, rate, training=self.training)

    def forward(self, inputs: Tensor, carried: Mapping[str, Tensor]) -> tuple[Tensor, list[Tensor], dict[str, Tensor]]:
        """inputs (T, B, I) -> last outputs (T, B, H) after dropout, outputs of all layers before it, and states."""
        following: dict[str, Tensor] = {}
        raw = list[Tensor]()
        for index in range(len(self.layers)):
            outputs, state = self.run_layer(index, inputs, carried)
            following.update(state)
            inputs = self.drop_after(index, outputs)
            raw.append(outputs)
        return inputs, raw, following

    def _layer(self, index: int) -> LSTMLayer:
        layer = self.layers[index]
        assert isinstance(layer, LSTMLayer)
        return layer
