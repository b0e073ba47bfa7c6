"""Records of what a stream model reads: outputs and hidden states of segments, states word by word, scores of words.

Shapes: T steps, B rows, E size of what the decoder reads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from treelm.models.layers.attention import attention_columns
from treelm.models.layers.precision import DECIMALS
from treelm.models.scores import SentenceScore
from treelm.models.states import IncrementalState

LOG_PROBS = "log_probs"
ENTROPIES = "attention_entropies"
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
    below: Sequence[Tensor] = ()  # (T, B, H) of the layers below the last, the lowest first


@dataclass(frozen=True, kw_only=True)
class StreamState(IncrementalState):
    """The hidden states of n sentences after some tokens, by the float64 copy in evaluation mode."""

    carried: RecurrentState  # (n, ...)
    hidden: Tensor  # (n, E) predicts the next token


class WordMetric(NamedTuple):
    """A metric of words. ``values`` (T, B) has one of every step, as ``to_host`` gives it; of ENTROPIES several."""

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
    words: NDArray[np.int64], metrics: Mapping[str, WordMetric], *, row: int = 0, start: int = 0
) -> SentenceScore:
    """The score of a sentence whose token i is of word ``words[i]`` and is predicted at step ``start`` + i of a row.

    ``metrics`` become columns, but for ``LOG_PROBS``, log p of what follows each step, and ``ENTROPIES``, of which
    ``attention_columns`` makes several.
    """
    steps = slice(start, start + len(words) + 1)
    columns = {
        name: one.of_words(words, row, start) for name, one in metrics.items() if name not in (LOG_PROBS, ENTROPIES)
    }
    if ENTROPIES in metrics:
        columns |= attention_columns(metrics[ENTROPIES].values[steps, row], words)
    return SentenceScore(
        log_probs=metrics[LOG_PROBS].values[steps, row],
        word_of_token=words,
        is_lower_bound=False,
        columns=columns,
    )
