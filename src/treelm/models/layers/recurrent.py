"""LSTM layers over sequences, and the dropouts of AWD-LSTM (Merity et al. 2018) around them.

Shapes: T steps, B rows, I and H sizes of a layer's input and output.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from torch import Tensor, nn
from torch.nn import functional

from treelm.models.layers.dropout import dropout, dropout_mask
from treelm.models.layers.lstm_layer import LSTMLayer


def locked_dropout(units: Tensor, probability: float, *, training: bool) -> Tensor:
    """In training, zero units of (T, B, D) by one mask (B, D) for all steps, and scale up the others."""
    if not training or probability == 0:
        return units
    return units * dropout_mask(units.shape[1], units.shape[2], probability, units)


def embed_with_dropout(symbols: Tensor, table: Tensor, probability: float, *, training: bool) -> Tensor:
    """Rows of the table (V, E) for symbols of any shape; in training, whole symbols are zeroed, wherever they occur."""
    vectors = functional.embedding(symbols, table)
    if not training or probability == 0:
        return vectors
    return vectors * functional.embedding(symbols, dropout_mask(len(table), 1, probability, table, shared=True))


@dataclass(frozen=True, kw_only=True)
class StackDropout:
    """Probabilities of dropping in a stack of layers."""

    between: float = 0.0  # units between layers
    output: float = 0.0  # units of the last layer
    weight: float = 0.0  # elements of the recurrent weights, one mask a call (DropConnect)
    locked: bool = True  # one mask of units for all steps, or one a step


class LSTMStack(nn.Module):
    """LSTM layers on top of each other, with the dropouts of AWD-LSTM.

    Recurrent weights are dropped as they are used, so evaluation sees them whole and training goes on as before.
    """

    def __init__(self, sizes: Sequence[int], rates: StackDropout) -> None:
        """``sizes`` are those of the input and of every layer's output."""
        super().__init__()
        self.layers = nn.ModuleList(LSTMLayer(size, following) for size, following in pairwise(sizes))
        self.rates = rates

    def begin(self, num_rows: int, like: Tensor) -> dict[str, Tensor]:
        """The zero state of every layer, (B, H) each, named ``hidden.0``, ``cell.0`` and so on."""
        state: dict[str, Tensor] = {}
        for index in range(len(self.layers)):
            size = self._layer(index).weights.hidden_size
            state[f"hidden.{index}"] = like.new_zeros(num_rows, size)
            state[f"cell.{index}"] = like.new_zeros(num_rows, size)
        return state

    def run_layer(self, index: int, inputs: Tensor, carried: Mapping[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        """inputs (T, B, I) -> raw outputs (T, B, H) of one layer, and its new entries of ``carried``."""
        layer = self._layer(index)
        weight = dropout(layer.weights.weight_hidden, self.rates.weight, training=self.training, shared=True)
        before = (carried[f"hidden.{index}"], carried[f"cell.{index}"])
        outputs, (hidden, cell) = layer(inputs, before, weight_hidden=weight)
        return outputs, {f"hidden.{index}": hidden, f"cell.{index}": cell}

    def drop_after(self, index: int, outputs: Tensor) -> Tensor:
        """The dropout that follows a layer."""
        rate = self.rates.output if index == len(self.layers) - 1 else self.rates.between
        drop = locked_dropout if self.rates.locked else dropout
        return drop(outputs, rate, training=self.training)

    def forward(self, inputs: Tensor, carried: Mapping[str, Tensor]) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """inputs (T, B, I) -> outputs of the last layer after dropout and before it (T, B, H), and what is carried."""
        following: dict[str, Tensor] = {}
        raw = inputs
        for index in range(len(self.layers)):
            raw, state = self.run_layer(index, inputs, carried)
            following.update(state)
            inputs = self.drop_after(index, raw)
        return inputs, raw, following

    def _layer(self, index: int) -> LSTMLayer:
        layer = self.layers[index]
        assert isinstance(layer, LSTMLayer)
        return layer


def activation_penalties(
    dropped: Tensor, raw: Tensor, mask: Tensor | None, *, activation: float, difference: float
) -> dict[str, Tensor]:
    """AR and TAR (Merity et al. 2018, section 4.6) of the last layer's outputs (T, B, H), weights included.

    AR is the mean square of the outputs after dropout, TAR that of the steps' differences before dropout; steps beyond
    ``mask`` (T, B) are left out.
    """
    penalties = {}
    if activation:
        kept = dropped if mask is None else dropped[mask]
        penalties["activation_penalty"] = activation * kept.pow(2).mean()
    if difference:
        steps = raw[1:] - raw[:-1]
        kept = steps if mask is None else steps[mask[1:]]
        penalties["difference_penalty"] = difference * (kept.pow(2).mean() if kept.numel() else kept.sum())
    return penalties
