"""Where the positions of a batch stand: packed by time, without padding.

A sentence of n symbols has n + 1 positions: position 0 reads the sentence boundary ``<s>``, position t the t-th symbol;
position t predicts symbol t + 1 and the last one the boundary again (``</s>``). Sentences are sorted by length, longest
first, so those that are still alive at position t are the first ``num_alive[t]`` rows, and the packed number of
position t of row b is ``offsets[t] + b``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from treelm.models.layers.levels import starts

IntArray = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True, slots=True)
class Layout:
    """The packed order of a batch. "Row" means a sentence in order of length."""

    sentences: IntArray  # (B,) the sentence of each row
    num_symbols: IntArray  # (B,) of each row
    num_alive: IntArray  # (T,) rows that have a position t
    offsets: IntArray  # (T + 1,)

    @property
    def num_positions(self) -> int:
        """Positions in all (P)."""
        return int(self.offsets[-1])

    @property
    def num_steps(self) -> int:
        """Positions of the longest sentence (T)."""
        return len(self.num_alive)

    def slice(self, t: int) -> slice:
        """The packed numbers of position t of all rows that have it."""
        return slice(int(self.offsets[t]), int(self.offsets[t + 1]))

    def rows(self) -> IntArray:
        """The row of every position: (P,)."""
        return np.arange(self.num_positions) - np.repeat(self.offsets[:-1], self.num_alive)

    def times(self) -> IntArray:
        """t of every position: (P,)."""
        return np.repeat(np.arange(self.num_steps), self.num_alive)

    def previous(self) -> IntArray:
        """The position before, in the same sentence, for every position from t = 1 on: (P - B,)."""
        first = int(self.num_alive[0])
        times = self.times()[first:]
        return self.offsets[times - 1] + self.rows()[first:]

    def of_row(self, row: int) -> IntArray:
        """The packed numbers of one row's positions, by time."""
        return self.offsets[: int(self.num_symbols[row]) + 1] + row

    def pack(self, padded: IntArray) -> IntArray:
        """Values (B, at least T) by sentence and time, in packed order: (P,)."""
        return padded[self.sentences[self.rows()], self.times()]


def lay_out(token_offsets: IntArray) -> Layout:
    """The layout of sentences whose symbols are bounded by these offsets (B + 1,)."""
    lengths = np.diff(token_offsets)
    order = np.argsort(-lengths, kind="stable")
    steps = np.arange(int(lengths.max()) + 1) if len(lengths) else np.zeros(0, np.int64)
    num_alive = (lengths[:, None] >= steps[None]).sum(0)
    return Layout(sentences=order, num_symbols=lengths[order], num_alive=num_alive, offsets=starts(num_alive))


def pad(values: IntArray, token_offsets: IntArray, *, first: int, last: int) -> IntArray:
    """Flat values of symbols as (B, longest + 2): ``first``, the symbols of the sentence, then ``last`` to the end."""
    lengths = np.diff(token_offsets)
    padded = np.full((len(lengths), int(lengths.max(initial=0)) + 2), last, np.int64)
    padded[:, 0] = first
    sentence = np.repeat(np.arange(len(lengths)), lengths)
    padded[sentence, np.arange(len(values)) - token_offsets[sentence] + 1] = values
    return padded
