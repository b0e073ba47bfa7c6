"""Packed rows: whole sentences of a document one after another, each row from the zero state."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from treelm.corpora.arrays import fingerprint, gather_indices
from treelm.corpora.batches import EpochBatches
from treelm.corpora.encoding import EncodedCorpus
from treelm.corpora.grouping import BatchesConfig, arrange, starts_of_pieces
from treelm.corpora.stream_batches import StreamBatch, TokenStream
from treelm.errors import check_positive

_GROUPS = BatchesConfig()  # rows of similar length share a batch, as sentences do


class PackedBatches(EpochBatches[NDArray[np.int64], StreamBatch]):
    """Batches of packed rows, epoch by epoch; every token of the corpus is a target once an epoch.

    A row holds as many whole sentences of one document, in their order, as go into ``bptt`` tokens with their ends; a
    longer sentence is cut into rows of ``bptt``. The first input of a row is the end token before it, so that its first
    sentence is read as it is when it stands alone. With ``shuffle`` (training) the first row of every document has
    room for a drawn number of tokens, from 1 to ``bptt``: each epoch packs other sentences together. Rows of similar
    length share a batch, and batches come in an order that follows from seed and epoch alone.
    """

    def __init__(
        self,
        encoded: EncodedCorpus,
        *,
        batch_size: int,
        bptt: int,
        seed: int = 0,
        shuffle: bool = True,
        constituents: bool = False,
    ) -> None:
        """Put the corpus in a row. Raises ``InputError`` for sizes below 1, and for no trees with ``constituents``."""
        check_positive(batch_size=batch_size, bptt=bptt)
        super().__init__()
        self._encoded = encoded
        self.stream = TokenStream.of(encoded, constituents=constituents)
        self._batch_size, self._bptt, self._seed, self._shuffle = batch_size, bptt, seed, shuffle
        self._fingerprints = {"data": fingerprint(self.stream.tokens), "documents": fingerprint(encoded.documents)}

    def _settings(self) -> dict[str, Any]:
        return {
            "batch_size": self._batch_size,
            "bptt": self._bptt,
            "seed": self._seed,
            "shuffle": self._shuffle,
            **self._fingerprints,
        }

    def _cut_epoch(self) -> list[NDArray[np.int64]]:
        """The rows of every batch: the places (B, 2) of their first tokens and of those after their last."""
        generator = np.random.default_rng([self._seed, self._epoch]) if self._shuffle else None
        rows = self._rows(generator)
        order, _ = arrange(rows[:, 1] - rows[:, 0], _GROUPS, generator)
        batches = np.split(rows[order], range(self._batch_size, len(order), self._batch_size))
        if generator is not None:
            batches = [batches[index] for index in generator.permutation(len(batches))]
        return [batch for batch in batches if len(batch)]

    def _rows(self, generator: np.random.Generator | None) -> NDArray[np.int64]:
        """All rows (n, 2) of an epoch, in the order of the corpus."""
        offsets = self.stream.sentence_offsets
        _, starts, lengths = np.unique(self._encoded.documents, return_index=True, return_counts=True)
        room = np.full(len(offsets) - 1, self._bptt)
        if generator is not None:
            room[starts] = generator.integers(1, self._bptt, size=len(starts), endpoint=True)
        stops = np.searchsorted(offsets, offsets[:-1] + room, side="right") - 1
        stops = np.minimum(stops, np.repeat(starts + lengths, lengths))
        stops = np.maximum(stops, np.arange(1, len(offsets)))
        pieces = starts_of_pieces(stops)
        first, last = offsets[pieces], offsets[stops[pieces]]
        number = -(-(last - first) // self._bptt)  # of rows: one, but for a longer sentence
        begin = np.repeat(first, number) + self._bptt * gather_indices(np.zeros_like(number), number)
        return np.stack([begin, np.minimum(begin + self._bptt, np.repeat(last, number))], 1)

    def _batch(self, cut: NDArray[np.int64]) -> StreamBatch:
        return self.stream.segment(cut[:, 0], cut[:, 1], name=self._encoded.name, continues=False)
