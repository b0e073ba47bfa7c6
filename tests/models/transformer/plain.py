"""The Transformer straight from its equations: one row of tokens, one query, one head at a time, in float64."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

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
    attention: list[list[Tensor]] | None = None,
) -> list[list[Tensor]]:
    """The inputs of the first layer, and the outputs of each, of tokens at the places 0, 1, ...

    ``attention`` gets that of the last layer: each query's heads, over all places up to its own.
    """
    units = [parameters["embedding"][token] for token in inputs]
    if positions == "learned":
        units = [x + parameters["places"][t] for t, x in enumerate(units)]
    sees = [[s for s in range(t + 1) if not memory_length or t - s <= memory_length] for t in range(len(inputs))]
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
