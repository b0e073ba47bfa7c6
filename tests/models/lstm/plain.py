"""AWD-LSTM straight from its equations: one row, one step, one layer at a time, float64. Shares nothing with treelm."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor


@dataclass
class Masks:
    """Factors 0 or 1/(1-p) of every dropout; None or empty: no dropout."""

    embedding: Tensor | None = None  # (V + 1, 1)
    inputs: Tensor | None = None  # (B, E)
    weights: list[Tensor] = field(default_factory=list)  # of a layer's weight_hidden
    outputs: list[Tensor] = field(default_factory=list)  # (B, H) a layer


def plain_losses(
    parameters: dict[str, Tensor],
    rows: list[list[int]],
    *,
    num_layers: int,
    end: int,
    masks: Masks | None = None,
    alpha: float = 0.0,
    beta: float = 0.0,
) -> tuple[Tensor, Tensor, Tensor, list[list[Tensor]]]:
    """Sum of -log p over all rows' tokens, AR, TAR, and the hidden states of every row's last step."""
    masks = masks or Masks()
    table = parameters["embedding"]
    decoder = parameters.get("output_weight", table)
    nats = torch.zeros((), dtype=torch.float64)
    dropped_squares, differences, last = [], [], []
    for number, tokens in enumerate(rows):
        hidden = [
            torch.zeros(parameters[f"stack.layers.{i}.weights.weight_hidden"].shape[1]) for i in range(num_layers)
        ]
        hidden = [one.double() for one in hidden]
        cells = [one.clone() for one in hidden]
        raw_before = None
        for before, wanted in zip([end, *tokens[:-1]], tokens, strict=True):
            x = table[before]
            if masks.embedding is not None:
                x = x * masks.embedding[before]
            if masks.inputs is not None:
                x = x * masks.inputs[number]
            for i in range(num_layers):
                weights = f"stack.layers.{i}.weights."
                recurrent = parameters[weights + "weight_hidden"]
                if masks.weights:
                    recurrent = recurrent * masks.weights[i]
                gates = parameters[weights + "weight_input"] @ x + recurrent @ hidden[i] + parameters[weights + "bias"]
                size = len(hidden[i])
                gate_i, gate_f, gate_o = (torch.sigmoid(gates[k * size : (k + 1) * size]) for k in range(3))
                cells[i] = gate_f * cells[i] + gate_i * torch.tanh(gates[3 * size :])
                hidden[i] = gate_o * torch.tanh(cells[i])
                x = hidden[i] * masks.outputs[i][number] if masks.outputs else hidden[i]
            nats = nats - (decoder @ x + parameters["output_bias"]).log_softmax(0)[wanted]
            dropped_squares.append((x**2).mean())
            if raw_before is not None:
                differences.append(((hidden[-1] - raw_before) ** 2).mean())
            raw_before = hidden[-1]
        last.append(hidden)
    activation = alpha * torch.stack(dropped_squares).mean()
    difference = beta * torch.stack(differences).mean() if differences else torch.zeros(())
    return nats, activation, difference, last
