"""Keys and values of what has been read, written once: they let states of reading share memory and never change.

Shapes: N layers, n sentences side by side, D units, C capacity, S rows that a query sees.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

_LEAST = 16  # rows of room


class KeyValueCache:
    """Keys and values of n sentences, of which whoever knows the lengths of its own may append.

    A state of reading is the cache and how many tokens it has read. The first to continue a state appends in place; a
    second continuation of the same state finds the place taken and gets a copy (``for_lengths``). So a sentence of m
    words that is read in a row costs O(m) copied rows, not O(m^2).
    """

    def __init__(self, num_layers: int, num_sentences: int, size: int, like: Tensor, *, capacity: int = _LEAST) -> None:
        """Make room on the device and in the precision of ``like``."""
        shape = (num_layers, num_sentences, capacity, size)
        self.keys, self.values = like.new_zeros(shape), like.new_zeros(shape)
        self._used = [0] * num_sentences

    def for_lengths(self, lengths: Sequence[int], rows: Sequence[int]) -> KeyValueCache:
        """The cache in which sentences of these lengths can get one token more in ``rows``: this one, or a copy."""
        longest = max(lengths)
        if longest < self.keys.shape[2] and all(self._used[row] == lengths[row] for row in rows):
            return self
        num_layers, num_sentences, _, size = self.keys.shape
        capacity = max(_LEAST, 2 * longest)
        copy = KeyValueCache(num_layers, num_sentences, size, self.keys, capacity=capacity)
        copy.keys[:, :, :longest] = self.keys[:, :, :longest]
        copy.values[:, :, :longest] = self.values[:, :, :longest]
        copy._used = list(lengths)
        return copy

    def claim(self, lengths: Sequence[int], rows: Sequence[int]) -> None:
        """Take the place behind the lengths of ``rows``, so that no other state appends there."""
        for row in rows:
            self._used[row] = lengths[row] + 1

    def append(
        self, layer: int, rows: Tensor, places: Tensor, key: Tensor, value: Tensor, *, num_seen: int
    ) -> tuple[Tensor, Tensor]:
        """Write a layer's key and value (m, D) at the places (m,) of rows (m,); give the first S of each: (m, S, D)."""
        found = []
        for kept, new in ((self.keys[layer], key), (self.values[layer], value)):
            kept[rows, places] = new
            seen = kept[:, :num_seen]
            found.append(seen if len(rows) == len(kept) else seen.index_select(0, rows))
        return found[0], found[1]
