"""Records of what a stream model reads: outputs and hidden states of segments, states word by word, scores of words.

Shapes: T steps, B rows, E size of what the decoder reads.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from treelm.errors import InputError
from treelm.models.layers.precision import DECIMALS
from treelm.models.scores import SentenceScore
from treelm.models.states import TextState

RecurrentState = dict[str, Tensor]
"""Hidden states that go from one segment of a stream to the next, without gradient: (B, ...) each, flat names."""


@dataclass(frozen=True, kw_only=True)
class StreamOutput:
    """Results of a network for T steps of B rows.

    ``regularisers`` are terms of the training loss, weights included, each a mean over what was read, in nats a target;
    none in evaluation. ``structure`` holds what the network found, (T, B, ...) each. ``distances`` (T, B) is the name
    of the syntactic distance between the input of each step and the one before.
    """

    outputs: Tensor  # (T, B, E) after output dropout
    carried: RecurrentState
    regularisers: Mapping[str, Tensor] = field(default_factory=dict)
    structure: Mapping[str, Tensor] = field(default_factory=dict)


def check_carried(before: RecurrentState, after: RecurrentState, *, system: str) -> None:
    """Raise ``InputError`` unless hidden states keep their names and shapes: rows are read side by side, and
    each may wait while others go on, so a state cannot grow from step to step."""
    for name in {**before, **after}:
        shapes = [None if name not in carried else tuple(carried[name].shape) for carried in (before, after)]
        if shapes[0] != shapes[1]:
            found = (
                f"{system}: the carried tensor {name!r} has the shape {shapes[0]} before steps and {shapes[1]} after"
            )
            raise InputError(
                found, remedy="let init_state and forward give tensors of one shape, such as a window of fixed size"
            )


@dataclass(frozen=True, kw_only=True)
class StreamState(TextState):
    """The hidden states of n sentences after some tokens, by the float64 copy in evaluation mode."""

    carried: RecurrentState  # (n, ...)
    hidden: Tensor  # (n, E) predicts the next token


class WordMetric(NamedTuple):
    """A metric of words. ``values`` (T, B) has one of every step, as ``to_host`` gives it."""

    values: NDArray[np.float64]
    predicts: bool  # a word's is that of the step that predicts its first token, else of the one that reads it

    def of_words(self, words: NDArray[np.int64], row: int, start: int = 0) -> NDArray[np.float64]:
        """One value a word; token i is of word ``words[i]``, and is predicted at step ``start`` + i of a row."""
        first = start + np.flatnonzero(np.diff(words, prepend=-1))
        found: NDArray[np.float64] = self.values[first if self.predicts else first + 1, row]
        return found


def to_host(values: Tensor) -> NDArray[np.float64]:
    """Values in float64, rounded to ``DECIMALS``: the last bits depend on batch-mates."""
    found: NDArray[np.float64] = values.double().cpu().numpy().round(DECIMALS)
    return found


def score_of(
    words: NDArray[np.int64],
    log_probs: NDArray[np.float64],
    metrics: Mapping[str, WordMetric],
    *,
    row: int = 0,
    start: int = 0,
) -> SentenceScore:
    """The score of a sentence whose token i is of word ``words[i]`` and is predicted at step ``start`` + i of a row.

    ``log_probs`` (T, B) are those of what follows each step; ``metrics`` become columns.
    """
    return SentenceScore(
        log_probs=log_probs[start : start + len(words) + 1, row],
        word_of_token=words,
        is_lower_bound=False,
        columns={name: metric.of_words(words, row, start) for name, metric in metrics.items()},
    )
