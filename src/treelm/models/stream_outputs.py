"""Records of what a stream model reads: outputs and hidden states of segments, and states word by word.

Shapes: T steps, B rows, E size of what the decoder reads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from torch import Tensor

from treelm.models.states import IncrementalState

RecurrentState = dict[str, Tensor]
"""Hidden states that go from one segment of a stream to the next, without gradient: tensors (B, ...) by name."""


@dataclass(frozen=True, kw_only=True)
class StreamOutput:
    """What a network finds in T steps of B rows.

    ``regularisers`` are terms of the training loss, with their weights: each is a mean over what was read, in nats per
    target; in evaluation there are none. ``structure`` holds what the network found of the structure of sentences, as
    tensors (T, B, ...). ``distances`` (T, B) is the name of the syntactic distance between the input of each step and
    the input before it.
    """

    outputs: Tensor  # (T, B, E) after output dropout
    carried: RecurrentState
    regularisers: Mapping[str, Tensor] = field(default_factory=dict)
    structure: Mapping[str, Tensor] = field(default_factory=dict)
    below: Sequence[Tensor] = ()  # (T, B, H) of the layers below the last, the lowest first


@dataclass(frozen=True, kw_only=True)
class StreamState(IncrementalState):
    """The hidden states of n sentences after some tokens, found by the exact copy of the network in evaluation mode."""

    carried: RecurrentState  # (n, ...)
    hidden: Tensor  # (n, E) predicts the next token
