"""What the Transformer's queries see of a sentence, of a segment with its memory, and of a state of reading.

Shapes: B rows, T tokens that are read, M tokens of memory, S = M + T that may be seen, N layers, D units.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from treelm.models.layers.attention import Rotary, Sight
from treelm.models.layers.key_values import KeyValueCache
from treelm.models.readings import StreamState
from treelm.models.transformer.config import TransformerConfig


@dataclass(frozen=True, kw_only=True)
class TransformerState(StreamState):
    """Knowledge of n sentences after some tokens: keys and values of all of them, written once and shared by states."""

    cache: KeyValueCache
    num_before: int = 0  # tokens in view that precede the sentences

    @property
    def lengths(self) -> list[int]:
        """Tokens in the cache: those read, and those before them, of which the last is an end."""
        return [self.num_before + 1 + number for number in self.num_tokens_read]


def sight_between(queries: Tensor, keys: Tensor, config: TransformerConfig, *, first: Tensor | None = None) -> Sight:
    """Sight of queries at places (B or 1, T) of keys at places (B or 1, S), from the place ``first`` (B,) on.

    ``first`` is where rows begin, 0 without it: from there on come the sinks, which are seen from everywhere.
    """
    distance = queries[:, :, None] - keys[:, None, :]
    hidden = distance < 0
    if config.memory_length:
        is_far = distance > config.memory_length
        if config.sink_tokens:
            is_far = is_far & (keys >= config.sink_tokens + (0 if first is None else first[:, None]))[:, None, :]
        hidden = hidden | is_far
    if first is not None:
        hidden = hidden | (keys < first[:, None])[:, None, :]
    relative = (distance.clamp(0, config.max_distance),) if config.positions == "relative" else ()
    rotary = Rotary(queries, keys) if config.positions == "rotary" else None
    is_near = first is None or not config.sink_tokens
    met = (min(config.max_distance + 1, keys.shape[1]),) if relative and is_near else None
    return Sight(hidden[:, None], relative, rotary, met)


def causal_sight(num_steps: int, config: TransformerConfig, device: torch.device) -> Sight:
    """Sight of the T tokens of sentences, each from its start."""
    places = torch.arange(num_steps, device=device)[None]
    sight = sight_between(places, places, config)
    is_all = not config.memory_length or num_steps <= config.memory_length + 1
    return sight._replace(hidden=None) if is_all and config.positions != "relative" else sight
