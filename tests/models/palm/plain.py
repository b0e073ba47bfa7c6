"""PaLM straight from its equations: one row, one step, one span at a time, float64. Shares nothing with treelm."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from tests.models.lstm.plain import Masks as LSTMMasks


@dataclass
class Masks(LSTMMasks):
    """Those of the LSTM, and two of the attention."""

    context: Tensor | None = None  # (B, 2D)
    joined: Tensor | None = None  # (B, H)


@dataclass
class PlainRow:
    """What was found at every step of one row."""

    log_probs: list[Tensor]  # (V + 1,) of the next token
    weights: list[Tensor]  # of spans of 1, 2, ... tokens that end before the step
    log_weights: list[Tensor]
    outputs: list[Tensor]
    raw: list[Tensor]


def gates(parameters: dict[str, Tensor], hidden: Tensor) -> tuple[Tensor, Tensor]:
    """f = sigmoid(W_f h + b), u = (1 - f) * tanh(W_u h); forwards units first."""
    weights = {name.rpartition(".")[2]: value for name, value in parameters.items() if "attention.rational" in name}
    forget = torch.sigmoid(weights["forget_weight"] @ hidden + weights["forget_bias"])
    return forget, (1 - forget) * torch.tanh(weights["update_weight"] @ hidden)


def span_representation(parameters: dict[str, Tensor], states: list[Tensor]) -> Tensor:
    """Read the states of a span forwards and backwards, each from zero, by c = f c + u."""
    size = len(parameters["attention.rational.forget_bias"]) // 2
    ends = []
    for half, order in ((slice(size), states), (slice(size, None), states[::-1])):
        cell = torch.zeros(size, dtype=states[0].dtype)
        for hidden in order:
            forget, update = gates(parameters, hidden)
            cell = forget[half] * cell + update[half]
        ends.append(cell)
    return torch.cat(ends)


def score(parameters: dict[str, Tensor], hidden: Tensor, span: Tensor) -> Tensor:
    """w_2 . tanh(W [h; g] + b)."""
    name = "attention.scorer."
    joint = torch.cat([parameters[name + "hidden_weight"], parameters[name + "span_weight"]], 1)
    return parameters[name + "output_weight"] @ torch.tanh(
        joint @ torch.cat([hidden, span]) + parameters[name + "bias"]
    )


def join(parameters: dict[str, Tensor], hidden: Tensor, context: Tensor, mask: Tensor | None) -> Tensor:
    """Eq. 6: g * MLP([h; a]) + (1 - g) * h."""
    own = {name.rpartition(".")[2]: value for name, value in parameters.items() if "attention.residual" in name}
    joint = torch.cat([hidden, context])
    gate = torch.sigmoid(own["gate_weight"] @ joint + own["gate_bias"])
    new = own["output_weight"] @ torch.tanh(own["hidden_weight"] @ joint + own["hidden_bias"]) + own["output_bias"]
    return gate * (new if mask is None else new * mask) + (1 - gate) * hidden


def log_space_states(forget: Tensor, update: Tensor, first: int, last: int) -> tuple[Tensor, Tensor]:
    """Both directions' states of a span by Algorithm 1: prefix states from zero, and division in log space.

    forget and update (n, 2D). c_{i,j} = c_{0,j} - c_{0,i-1} * (f_i ... f_j), the product by a difference of sums.
    """
    size = forget.shape[1] // 2
    found = []
    for half, order in ((slice(size), 1), (slice(size, None), -1)):
        f, u = (values[:, half] if order == 1 else values[:, half].flip(0) for values in (forget, update))
        start, stop = (first, last) if order == 1 else (len(f) - 1 - last, len(f) - 1 - first)
        sums, cells, cell = torch.cumsum(torch.log(f), 0), [], torch.zeros_like(f[0])
        for forgotten, new in zip(f, u, strict=True):
            cell = forgotten * cell + new
            cells.append(cell)
        if start == 0:
            found.append(cells[stop])
        else:
            found.append(cells[stop] - cells[start - 1] * torch.exp(sums[stop] - sums[start - 1]))
    return found[0], found[1]


def read_row(
    parameters: dict[str, Tensor],
    tokens: list[int],
    *,
    num_layers: int,
    attention_layer: int,
    max_span: int,
    row: int = 0,
    masks: Masks | None = None,
    fixed: str | None = None,
    given: list[list[int]] | None = None,
) -> PlainRow:
    """Read the tokens of a row from the zero state; ``given`` are the lengths of constituents before each step."""
    masks = masks or Masks()
    table = parameters["embedding"]
    states: list[Tensor] = []  # that spans are made of
    sizes = [parameters[f"stack.layers.{i}.weights.weight_hidden"].shape[1] for i in range(num_layers)]
    hidden = [torch.zeros(size, dtype=table.dtype) for size in sizes]
    cell = [torch.zeros(size, dtype=table.dtype) for size in sizes]
    found = PlainRow([], [], [], [], [])
    reach = 0
    for step, token in enumerate(tokens):
        x = table[token]
        if masks.embedding is not None:
            x = x * masks.embedding[token]
        if masks.inputs is not None:
            x = x * masks.inputs[row]
        for layer in range(num_layers):
            own = {name: parameters[f"stack.layers.{layer}.weights.{name}"] for name in ("weight_input", "bias")}
            recurrent = parameters[f"stack.layers.{layer}.weights.weight_hidden"]
            if masks.weights:
                recurrent = recurrent * masks.weights[layer]
            i, f, o, g = (own["weight_input"] @ x + recurrent @ hidden[layer] + own["bias"]).chunk(4)
            cell[layer] = torch.sigmoid(f) * cell[layer] + torch.sigmoid(i) * torch.tanh(g)
            hidden[layer] = torch.sigmoid(o) * torch.tanh(cell[layer])
            x = hidden[layer]
            if masks.outputs:
                x = x * masks.outputs[layer][row]
            if layer == attention_layer - 1:
                lengths = range(1, min(reach, max_span) + 1)
                spans = [span_representation(parameters, states[len(states) - length :]) for length in lengths]
                if fixed:
                    scores = [torch.tensor(float(n if fixed == "right" else max_span + 1 - n)) for n in lengths]
                elif given is None:
                    scores = [score(parameters, x, span) for span in spans]
                context = torch.zeros(len(parameters["attention.rational.forget_bias"]), dtype=table.dtype)
                weights = log_weights = torch.zeros(0, dtype=table.dtype)
                if given is not None:
                    chosen = [length for length in given[step] if length in lengths]
                    weights = torch.tensor([float(n in chosen) for n in lengths]).double() / max(len(chosen), 1)
                elif spans:
                    log_weights = torch.stack(scores).to(table.dtype).log_softmax(0)
                    weights = log_weights.exp()
                for weight, span in zip(weights, spans, strict=True):
                    context = context + weight * span
                if masks.context is not None:
                    context = context * masks.context[row]
                found.weights.append(weights)
                found.log_weights.append(log_weights)
                states.append(x)
                reach += 1
                x = join(parameters, x, context, None if masks.joined is None else masks.joined[row])
        found.raw.append(hidden[-1])
        found.outputs.append(x)
        found.log_probs.append((table @ x + parameters["output_bias"]).log_softmax(0))
    return found
