"""Parts of batches."""

from __future__ import annotations

import numpy as np
import pytest

from tests.training.toys import toy_batch
from treelm.corpora.stream_batches import StreamBatch
from treelm.training.data import part_of, shard_rows


@pytest.mark.parametrize("num_shards", [1, 2, 3, 7, 9])
def test_shards_are_all_rows_once_and_as_equal_as_may_be(num_shards: int) -> None:
    slices = [shard_rows(7, shard, num_shards) for shard in range(num_shards)]
    assert [row for rows in slices for row in range(rows.start, rows.stop)] == list(range(7))
    lengths = [rows.stop - rows.start for rows in slices]
    assert max(lengths) - min(lengths) <= 1


def test_sentences_of_a_batch() -> None:
    part = part_of(toy_batch([[1, 2], [3], [4, 5, 6]], "abc"), slice(1, 3), np.ones(10, dtype=bool))
    assert part.names == ("b", "c")
    assert (part.tokens.tolist(), part.token_offsets.tolist()) == ([3, 4, 5, 6], [0, 1, 4])  # type: ignore[union-attr]


def test_rows_of_a_segment_count_their_own_words_and_keep_their_own_constituents() -> None:
    ends_word = np.array([True, False])  # so 2 is the end
    batch = StreamBatch(
        inputs=np.array([[2, 0, 1], [0, 1, 0]]),
        targets=np.array([[0, 1, 0], [2, 0, 2]]),
        mask=np.array([[True, True, True], [True, True, False]]),
        continues=True,
        num_words=3,
        num_sentences=1,
        positions=np.array([0, 10, 20]),
        constituents=np.array([[0, 1, 2], [1, 0, 2], [1, 2, 4]]),
        names=("a", "b", "c"),
    )
    part = part_of(batch, slice(1, 3), ends_word)
    assert isinstance(part, StreamBatch)
    assert (part.num_words, part.num_sentences, part.num_targets) == (2, 0, 3)
    assert part.inputs.tolist() == [[0, 1], [1, 0]]
    assert part.constituents is not None
    assert part.constituents.tolist() == [[0, 0, 2], [1, 1, 4]]
    assert (part.positions.tolist(), part.names, part.continues) == ([10, 20], ("b", "c"), True)
