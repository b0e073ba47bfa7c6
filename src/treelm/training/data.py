"""The interface between training and its batches, and cutting a batch into shards."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from treelm.corpora.arrays import offsets_of
from treelm.corpora.batches import SentenceBatch
from treelm.corpora.stream_batches import StreamBatch
from treelm.errors import InputError

Batch = SentenceBatch | StreamBatch


class Batches(Protocol):
    """Batches of one epoch after another, with a position that can be saved and restored."""

    def __len__(self) -> int:
        """Number of batches in the present epoch."""

    def __iter__(self) -> Iterator[Batch]:
        """The batches that are left in the present epoch; a new iteration gives the next epoch."""

    def state(self) -> dict[str, Any]:
        """The position behind the batch that was given last, as JSON values."""

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go back to a position."""


def read_epoch(batches: Batches) -> Iterator[tuple[Batch, dict[str, Any], Batch | None]]:
    """The rest of an epoch: each batch, the position behind it, the next batch or None. ``InputError`` without any."""
    iterator = iter(batches)
    batch = next(iterator, None)
    if batch is None:
        remedy = "check [data], and max_length and first_max_length in [batches]: is every sentence left out?"
        raise InputError("the training data gives no batches", remedy=remedy)
    while batch is not None:
        position = batches.state()
        following = next(iterator, None)
        yield batch, batches.state() if following is None else position, following
        batch = following


def part_of(batch: Batch, rows: slice, ends_word: NDArray[np.bool_]) -> Batch:
    """Some sentences of a batch, or some rows of a segment. ``ends_word`` is the vocabulary's, to count words by."""
    if rows == slice(0, len(batch)):
        return batch
    return _rows(batch, rows, ends_word) if isinstance(batch, StreamBatch) else _sentences(batch, rows)


def shard_rows(num_rows: int, shard: int, num_shards: int) -> slice:
    """The rows of one of so many parts, as equal as may be."""
    return slice(num_rows * shard // num_shards, num_rows * (shard + 1) // num_shards)


def _sentences(batch: SentenceBatch, part: slice) -> SentenceBatch:
    changes: dict[str, Any] = {"num_words": batch.num_words[part], "names": batch.names[part]}
    for name, offsets_name in (
        ("tokens", "token_offsets"),
        ("actions", "action_offsets"),
        ("preceding", "preceding_offsets"),
    ):
        values, offsets = getattr(batch, name), getattr(batch, offsets_name)
        if values is not None:
            changes[name], changes[offsets_name] = _cut(values, offsets, part)
    if batch.tags is not None:
        changes["tags"], _ = _cut(batch.tags, offsets_of(batch.num_words), part)
    return replace(batch, **changes)


def _rows(batch: StreamBatch, part: slice, ends_word: NDArray[np.bool_]) -> StreamBatch:
    targets = np.ascontiguousarray(batch.targets[:, part])
    mask = None if batch.mask is None else np.ascontiguousarray(batch.mask[:, part])
    counted = targets if mask is None else targets[mask]
    constituents = batch.constituents
    if constituents is not None:
        inside = (constituents[:, 1] >= part.start) & (constituents[:, 1] < part.stop)
        constituents = constituents[inside] - np.array([0, part.start, 0])
    return replace(
        batch,
        inputs=np.ascontiguousarray(batch.inputs[:, part]),
        targets=targets,
        mask=mask,
        num_words=int(np.append(ends_word, False)[counted].sum()),
        num_sentences=int((counted == len(ends_word)).sum()),
        positions=batch.positions[part],
        constituents=constituents,
        names=batch.names[part],
    )


def _cut(
    values: NDArray[np.int64], offsets: NDArray[np.int64], part: slice
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    own = offsets[part.start : part.stop + 1]
    return values[own[0] : own[-1]], own - own[0]
