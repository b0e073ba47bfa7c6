"""The reading network: LSTM layers whose recurrence attends to earlier states (Eqs. 9-12, Shen et al. 2018)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from treelm.models.layers.dropout import dropout, dropout_mask
from treelm.models.layers.graphs import GraphedFunction
from treelm.models.layers.precision import linear
from treelm.models.prpn.cell import layer_norm
from treelm.models.prpn.config import PRPNConfig
from treelm.models.prpn.gates import OpenSlots
from treelm.models.prpn.sweep import LayerMasks, ReadingSweep


class GainedNorm(nn.Module):
    """The gain and the shift of a layer norm."""

    def __init__(self, size: int) -> None:
        """Start as plain normalisation."""
        super().__init__()
        self.gain = nn.Parameter(torch.ones(size))
        self.shift = nn.Parameter(torch.zeros(size))


class ReadingLayer(nn.Module):
    """One layer. ``forward`` hoists what depends on inputs alone; ``sweep.ReadingSweep`` does the rest.

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
