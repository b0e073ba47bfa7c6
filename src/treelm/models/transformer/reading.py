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

    @property
    def lengths(self) -> list[int]:
        """Tokens in the cache: those read, and the end token before them."""
        return [number + 1 for number in self.num_tokens_read]


def sight_between(queries: Tensor, keys: Tensor, config: TransformerConfig, *, first: Tensor | None = None) -> Sight:
    """Sight of queries at places (B or 1, T) of keys at places (B or 1, S), from the place ``first`` (B,) on."""
    distance = queries[:, :, None] - keys[:, None, :]
    hidden = distance < 0
    if config.memory_length:
        hidden = hidden | (distance > config.memory_length)
    if first is not None:
        hidden = hidden | (keys < first[:, None])[:, None, :]
    relative = (distance.clamp(0, config.max_distance),) if config.positions == "relative" else ()
    rotary = Rotary(queries, keys) if config.positions == "rotary" else None
    met = (min(config.max_distance + 1, keys.shape[1]),) if relative else None
    return Sight(hidden[:, None], relative, rotary, met)


def causal_sight(num_steps: int, config: TransformerConfig, device: torch.device) -> Sight:
    """Sight of the T tokens of sentences, each from its start."""
    places = torch.arange(num_steps, device=device)[None]
    sight = sight_between(places, places, config)
    is_all = not config.memory_length or num_steps <= config.memory_length + 1
    return sight._replace(hidden=None) if is_all and config.positions != "relative" else sight
