"""The Transformer straight from its equations: one row of tokens, one query, one head at a time, in float64."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from tests.models.layers.plain_attention import block, layer_norm


def layer_weights(parameters: Mapping[str, Tensor], layer: int) -> dict[str, Tensor]:
    start = f"blocks.{layer}."
    return {name.removeprefix(start): value for name, value in parameters.items() if name.startswith(start)}


def plain_layers(
    parameters: Mapping[str, Tensor],
    inputs: Sequence[int],
    *,
    num_layers: int,
    num_heads: int,
    positions: str,
    max_distance: int = 0,
    memory_length: int = 0,
    sink_tokens: int = 0,
    attention: list[list[Tensor]] | None = None,
) -> list[list[Tensor]]:
    """The inputs of the first layer, and the outputs of each, of tokens at the places 0, 1, ...

    ``attention`` gets that of the last layer: each query's heads, over all places up to its own, and their values.
    """
    units = [parameters["embedding"][token] for token in inputs]
    if positions == "learned":
        units = [x + parameters["places"][t] for t, x in enumerate(units)]
    sees = [
        [s for s in range(t + 1) if not memory_length or t - s <= memory_length or s < sink_tokens]
        for t in range(len(inputs))
    ]
    kinds = [lambda t, s: min(t - s, max_distance)] if positions == "relative" else []
    found = [units]
    for layer in range(num_layers):
        kept = attention if layer == num_layers - 1 else None
        weights, rotary = layer_weights(parameters, layer), positions == "rotary"
        found.append(
            block(weights, found[-1], sees, num_heads=num_heads, kinds=kinds, rotary=rotary, found=kept),
        )
    return found


def plain_losses(parameters: Mapping[str, Tensor], tokens: Sequence[int], *, end: int, **sizes: object) -> list[Tensor]:
    """-log p of each token, the end before the first being given: p(w) = softmax(E LN(h) + b)."""
    layers = plain_layers(parameters, [end, *tokens[:-1]], **sizes)  # type: ignore[arg-type]
    losses = []
    for x, wanted in zip(layers[-1], tokens, strict=True):
        h = layer_norm(x, parameters["norm.weight"], parameters["norm.bias"])
        losses.append(-(parameters["embedding"] @ h + parameters["output_bias"]).log_softmax(0)[wanted])
    return losses


# Second losses, from trees: a token, or (label, children).


def parts_of(node: Any, ends_word: Sequence[bool]) -> list[Any]:
    """Children of a constituent, the tokens of a word as one list."""
    parts: list[Any] = []
    unfinished: list[int] = []
    for child in node[1]:
        if not isinstance(child, int):
            parts.append(child)
            continue
        unfinished.append(child)
        if ends_word[child]:
            parts.append(unfinished)
            unfinished = []
    return parts


def width(part: Any, ends_word: Sequence[bool]) -> int:
    return len(part) if isinstance(part, list) else sum(width(one, ends_word) for one in parts_of(part, ends_word))


def right_branching(node: Any, start: int, ends_word: Sequence[bool]) -> list[tuple[int, int, int]]:
    """(a, b, k) of each binary constituent."""
    if isinstance(node, list):
        return []
    parts, found, end = parts_of(node, ends_word), list[tuple[int, int, int]](), start + width(node, ends_word) - 1
    for number, part in enumerate(parts):
        found += right_branching(part, start, ends_word)
        if number < len(parts) - 1:
            found.append((start, end, start + width(part, ends_word) - 1))
        start += width(part, ends_word)
    return found


def scin(states: Sequence[Tensor], a: int, b: int) -> Tensor:
    if a == 0 or a >= len(states):
        return states[0].new_zeros(())
    direction = states[a - 1] / states[a - 1].norm()
    return (states[b] - (states[b] @ direction) * direction).norm()


def split_score(states: Sequence[Tensor], a: int, k: int, b: int) -> Tensor:
    inner = scin(states, a, k) + scin(states, k + 1, b)
    return inner + scin(states, k + 1, k + 1) + scin(states, b + 1, b + 1)


def plain_treereg(states: Sequence[Tensor], tree: Any, tokens: Sequence[int], ends_word: Sequence[bool]) -> Tensor:
    """Mean over a sentence's constituents with two possible splits, as often as it has targets; 0 without one."""
    losses = []
    for a, b, gold in right_branching(tree, 0, ends_word):
        possible = [k for k in range(a, b) if ends_word[tokens[k]]]
        if len(possible) > 1:
            scores = torch.stack([split_score(states, a, k, b) for k in possible])
            losses.append(-scores.log_softmax(0)[possible.index(gold)])
    return (len(tokens) + 1) * torch.stack(losses).mean() if losses else states[0].new_zeros(())


def paths(node: Any, above: tuple[int, ...], ends_word: Sequence[bool]) -> list[tuple[int, ...]]:
    """The way from the root to each word."""
    if isinstance(node, list):
        return [above]
    parts = enumerate(parts_of(node, ends_word))
    return [way for number, part in parts for way in paths(part, (*above, number), ends_word)]


def edges(one: tuple[int, ...], other: tuple[int, ...]) -> int:
    common = 0
    while common < min(len(one), len(other)) and one[common] == other[common]:
        common += 1
    return len(one) + len(other) - 2 * common


def plain_planting(attention: Sequence[Tensor], tree: Any, tokens: Sequence[int], ends_word: Sequence[bool]) -> Tensor:
    """Sum over words of KL; ``attention[t]`` is that of the position t over START and the tokens before t."""
    ways = [(-1,), *paths(tree, (), ends_word)]
    word_of = [1 + sum(bool(ends_word[token]) for token in tokens[:t]) for t in range(len(tokens))]
    total = attention[0].new_zeros(())
    for word in range(2, len(ways)):
        target = torch.tensor([edges(ways[word], way) for way in ways[:word]]).double().neg().exp()
        target = target / target.sum()
        given = [attention[0].new_zeros(()) for _ in range(word)]
        for t in (t for t in range(len(tokens)) if word_of[t] == word):
            for s, share in enumerate(attention[t]):
                number = 0 if s == 0 else word_of[s - 1]
                if number < word:
                    given[number] = given[number] + share
        shares = torch.stack(given) / torch.stack(given).sum()
        total = total + (target * (target.log() - shares.log())).sum()
    return total
