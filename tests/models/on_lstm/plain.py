"""ON-LSTM straight from its equations: one row, one step, one layer at a time. Shares nothing with treelm."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from tests.models.lstm.plain import Masks


def cumax(values: Tensor) -> Tensor:
    """Eq. 8."""
    shares = values.exp() / values.exp().sum()
    return torch.stack([shares[: k + 1].sum() for k in range(len(shares))])


def plain_step(
    x: Tensor, hidden: Tensor, cell: Tensor, weight_input: Tensor, weight_hidden: Tensor, bias: Tensor, chunk_size: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Eqs. 6-14 for one row: hidden state, cell, master forget gate."""
    size = len(hidden)
    gates = weight_input @ x + weight_hidden @ hidden + bias
    i, f, o = (torch.sigmoid(gates[k * size : (k + 1) * size]) for k in range(3))
    candidate = torch.tanh(gates[3 * size : 4 * size])
    num_masters = size // chunk_size
    master_input = 1 - cumax(gates[4 * size : 4 * size + num_masters])
    master_forget = cumax(gates[4 * size + num_masters :])
    cells = []
    for unit in range(size):
        above, below = master_input[unit % num_masters], master_forget[unit % num_masters]
        overlap = above * below
        forget = f[unit] * overlap + (below - overlap)
        write = i[unit] * overlap + (above - overlap)
        cells.append(forget * cell[unit] + write * candidate[unit])
    new_cell = torch.stack(cells)
    return o * torch.tanh(new_cell), new_cell, master_forget


@dataclass
class PlainResult:
    nats: Tensor
    activation: Tensor  # mean square of the last layer's outputs after dropout
    difference: Tensor  # of the steps' differences before it
    distances: list[list[list[float]]]  # row, step, layer


def plain_losses(
    parameters: dict[str, Tensor],
    rows: list[list[int]],
    *,
    num_layers: int,
    chunk_size: int,
    end: int,
    masks: Masks | None = None,
) -> PlainResult:
    """Rows of one length, or no penalties: each from the zero state, the first input the end token."""
    masks = masks or Masks()
    table = parameters["embedding"]
    nats = table.new_zeros(())
    squares, differences, distances = [], [], []
    for number, tokens in enumerate(rows):
        sizes = [parameters[f"layers.{k}.weights.weight_hidden"].shape[1] for k in range(num_layers)]
        hidden, cells = ([table.new_zeros(size) for size in sizes] for _ in range(2))
        before_raw = None
        distances.append([])
        for before, wanted in zip([end, *tokens[:-1]], tokens, strict=True):
            x = table[before]
            x = x if masks.embedding is None else x * masks.embedding[before]
            x = x if masks.inputs is None else x * masks.inputs[number]
            found = []
            for k in range(num_layers):
                name = f"layers.{k}.weights."
                recurrent = parameters[name + "weight_hidden"]
                recurrent = recurrent * masks.weights[k] if masks.weights else recurrent
                hidden[k], cells[k], forget = plain_step(
                    x,
                    hidden[k],
                    cells[k],
                    parameters[name + "weight_input"],
                    recurrent,
                    parameters[name + "bias"],
                    chunk_size,
                )
                x = hidden[k] * masks.outputs[k][number] if masks.outputs else hidden[k]
                found.append(1 - forget.sum().item() / len(forget))
            distances[-1].append(found)
            nats = nats - (table @ x + parameters["output_bias"]).log_softmax(0)[wanted]
            squares.append((x**2).mean())
            if before_raw is not None:
                differences.append(((hidden[-1] - before_raw) ** 2).mean())
            before_raw = hidden[-1]
    return PlainResult(nats, torch.stack(squares).mean(), torch.stack(differences).mean(), distances)
