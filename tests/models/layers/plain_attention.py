"""The block of a Transformer straight from its equations: one query, one head at a time. Shares nothing with treelm."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Weights = Mapping[str, Tensor]
Place = Callable[[int, int], int]  # of a query and a key
EPSILON = 1e-5  # of the layer norm


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    centred = x - x.mean()
    return centred / (centred**2).mean().add(EPSILON).sqrt() * weight + bias


def gelu(x: Tensor) -> Tensor:
    return x * 0.5 * (1 + torch.erf(x / math.sqrt(2)))


def turned(vector: Tensor, place: int) -> Tensor:
    """Pairs of units as complex numbers, times e^(i place 10000^(-2i/d))."""
    pairs = torch.view_as_complex(vector.view(-1, 2).contiguous())
    angles = torch.tensor([place * 10000 ** (-2 * i / len(vector)) for i in range(len(pairs))], dtype=torch.float64)
    return torch.view_as_real(pairs * torch.exp(1j * angles)).flatten()


def heads_of(weights: Weights, x: Tensor) -> tuple[Tensor, ...]:
    """Query, key and value (D,) of an input."""
    normed = layer_norm(x, weights["attention_norm.weight"], weights["attention_norm.bias"])
    return (weights["query_key_value.weight"] @ normed + weights["query_key_value.bias"]).chunk(3)


def weights_of(
    weights: Weights,
    query: Tensor,
    keys: Sequence[Tensor],
    t: int,
    seen: Sequence[int],
    head: slice,
    number: int,
    kinds: Sequence[Place],
    rotary: bool = False,
) -> Tensor:
    """The attention of one query, at place t, and one head over what it sees."""
    query = query[head]
    content = query + weights["content_bias"][number, 0] if kinds else query
    relative = [
        (query + weights[f"relative.{kind}.bias"][number, 0], weights[f"relative.{kind}.keys"][number], place)
        for kind, place in enumerate(kinds)
    ]
    logits = []
    for s in seen:
        key = keys[s][head]
        logit = turned(query, t) @ turned(key, s) if rotary else content @ key
        for own, table, place in relative:
            logit = logit + own @ table[place(t, s)]
        logits.append(logit / math.sqrt(len(query)))
    return torch.stack(logits).softmax(0)


def finished(weights: Weights, x: Tensor, mixed: Sequence[Tensor]) -> Tensor:
    """The layer's output from its input and the mixed values of all heads."""
    x = x + weights["output.weight"] @ torch.cat([*mixed]) + weights["output.bias"]
    inner = layer_norm(x, weights["feedforward_norm.weight"], weights["feedforward_norm.bias"])
    inner = gelu(weights["up.weight"] @ inner + weights["up.bias"])
    return x + weights["down.weight"] @ inner + weights["down.bias"]


def block(
    weights: Weights,
    inputs: Sequence[Tensor],
    sees: Sequence[Sequence[int]],
    *,
    num_heads: int,
    kinds: Sequence[Place] = (),
    rotary: bool = False,
    found: list[list[Tensor]] | None = None,
) -> list[Tensor]:
    """Outputs of a layer for its inputs (D,) at places 0, 1, ...; place t sees the places ``sees[t]``.

    ``found`` gets the attention of each head of each query over what it sees, and the values of that behind it.
    """
    size = len(inputs[0])
    queries, keys, values = zip(*(heads_of(weights, x) for x in inputs), strict=True)
    outputs = []
    for t, x in enumerate(inputs):
        mixed = []
        for number in range(num_heads):
            head = slice(number * size // num_heads, (number + 1) * size // num_heads)
            attention = weights_of(weights, queries[t], keys, t, sees[t], head, number, kinds, rotary)
            if found is not None:
                found.append([attention, *(values[s] for s in sees[t])])
            mixed.append(sum((a * values[s][head] for a, s in zip(attention, sees[t], strict=True)), x.new_zeros(())))
        outputs.append(finished(weights, x, mixed))
    return outputs


def looks_back(
    weights: Weights, attention: Tensor, values: Sequence[Tensor], number: int, num_heads: int
) -> list[float]:
    """Normalised attention entropies of a head's query: by its weights, and by norms.

    ``attention`` and ``values`` (D,) are those of what it sees but itself.
    """
    size = len(weights["output.bias"])
    head = slice(number * size // num_heads, (number + 1) * size // num_heads)
    brought = [weights["output.weight"][:, head] @ v[head] + weights["output.bias"] / num_heads for v in values]
    before = [float(a) for a in attention]
    found = []
    for parts in (before, [a * float((v**2).sum().sqrt()) for a, v in zip(before, brought, strict=True)]):
        shares = [part / sum(parts) for part in parts]
        entropy = -sum(p * math.log(p) for p in shares if p > 0)
        found.append(entropy / math.log(len(shares)) if len(shares) > 1 else 0.0)
    return found


def columns_of(entropies: NDArray[np.float64], words: Sequence[Sequence[int]]) -> dict[str, NDArray[np.float64]]:
    """Columns of words of these tokens, counted from 1, from entropies of each head (1 + tokens, H, 2), 0 first."""
    heads = entropies[..., 1]
    changes = [abs(heads[t] - heads[t - 1]).sum() if t else 0.0 for t in range(len(heads))]
    return {
        "attention_entropy": np.array([entropies[tokens[0], :, 0].mean() for tokens in words]),
        "nae": np.array([sum(heads[t].sum() for t in tokens) for tokens in words]),
        "delta_nae": np.array([sum(changes[t] for t in tokens) for tokens in words]),
    }


Rows = tuple[tuple[Tensor, ...], ...]
"""Keys or values of each position, of each layer."""


def read_one(
    parameters: Weights,
    x: Tensor,
    keys: Rows,
    values: Rows,
    *,
    num_layers: int,
    sees: Sequence[Sequence[int]],  # of each head
    kinds: Sequence[Place],
    found: list[list[Tensor]] | None = None,
) -> tuple[Tensor, Rows, Rows]:
    """The normed output of one more position, layer by layer, and the keys and values with its own.

    ``found`` gets the attention of each head of each layer over what it sees.
    """
    own, size, num_heads = len(keys), len(x), len(sees)
    new_keys, new_values = list[Tensor](), list[Tensor]()
    for layer in range(num_layers):
        start = f"blocks.{layer}."
        weights = {n.removeprefix(start): value for n, value in parameters.items() if n.startswith(start)}
        query, key, value = heads_of(weights, x)
        all_keys, all_values = ([*(row[layer] for row in rows), new] for rows, new in ((keys, key), (values, value)))
        mixed = []
        if found is not None:
            found.append([])
        for number, seen in enumerate(sees):
            head = slice(number * size // num_heads, (number + 1) * size // num_heads)
            attention = weights_of(weights, query, all_keys, own, seen, head, number, kinds)
            if found is not None:
                found[-1].append(attention)
            mixed.append(sum((a * all_values[s][head] for a, s in zip(attention, seen, strict=True)), x.new_zeros(())))
        x = finished(weights, x, mixed)
        new_keys.append(key)
        new_values.append(value)
    output = layer_norm(x, parameters["norm.weight"], parameters["norm.bias"])
    return output, (*keys, tuple(new_keys)), (*values, tuple(new_values))
