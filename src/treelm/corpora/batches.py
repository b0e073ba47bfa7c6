"""Batches: what a model computes on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, kw_only=True, slots=True)
class SentenceBatch:
    """Whole sentences, flat and without padding.

    Symbols of sentence b are ``tokens[token_offsets[b]:token_offsets[b + 1]]``; its actions, if it has a tree,
    ``actions[action_offsets[b]:action_offsets[b + 1]]``: top-down, one SHIFT a symbol, labels numbered as in the model.
    """

    tokens: NDArray[np.int64]
    token_offsets: NDArray[np.int64]
    num_words: NDArray[np.int64]  # a sentence
    actions: NDArray[np.int64] | None = None
    action_offsets: NDArray[np.int64] | None = None
    names: tuple[str, ...]  # file:line of each sentence, for messages

    def __len__(self) -> int:
        """Number of sentences."""
        return len(self.num_words)
