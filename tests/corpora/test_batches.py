from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from treelm.corpora.batches import BatchesConfig, SentenceBatches, arrange
from treelm.corpora.encoding import SentenceBatch
from treelm.errors import InputError


class Lengths:
    """Sentences that are nothing but their number and length."""

    def __init__(self, num_actions: list[int]) -> None:
        self.num_actions = np.array(num_actions, dtype=np.int64)
        self.num_tokens = self.num_actions // 2 + 1

    def batch(self, indices: NDArray[np.int64]) -> SentenceBatch:
        return SentenceBatch(
            tokens=np.asarray(indices),
            token_offsets=np.arange(len(indices) + 1),
            num_words=np.ones(len(indices), dtype=np.int64),
            names=(),
        )


LENGTHS = st.lists(st.integers(1, 60), max_size=60)


def epoch(batches: SentenceBatches) -> list[list[int]]:
    return [batch.tokens.tolist() for batch in batches]


def slow_cut(lengths: list[list[int]], limits: list[int | None], batch_size: int) -> list[int]:
    """Sizes of batches by adding sentences one by one; ``lengths[i]`` is held against ``limits[i]``."""
    sizes: list[int] = []
    used = [0] * len(limits)
    for costs in zip(*lengths, strict=True):
        over = any(limit is not None and u + c > limit for u, c, limit in zip(used, costs, limits, strict=True))
        if not sizes or over or sizes[-1] == batch_size:
            sizes.append(0)
            used = [0] * len(limits)
        sizes[-1] += 1
        used = [u + c for u, c in zip(used, costs, strict=True)]
    return sizes


@given(LENGTHS, st.integers(1, 9), st.none() | st.integers(1, 90))
def test_batches_are_cut_as_if_sentence_by_sentence(lengths: list[int], size: int, max_actions: int | None) -> None:
    data = Lengths(sorted(lengths))
    batches = SentenceBatches(data, batch_size=size, max_actions=max_actions, shuffle=False)
    assert [len(batch) for batch in epoch(batches)] == slow_cut([data.num_actions.tolist()], [max_actions], size)


def test_sentences_beyond_the_longest_are_left_out_and_every_epoch_has_longer_ones() -> None:
    data = Lengths([*range(0, 20, 2), 8, 8])  # actions: tokens are half of them and one, 1 to 10
    batches = SentenceBatches(data, batch_size=2, config=BatchesConfig(first_max_length=4, max_length=6))
    seen = [sorted(data.num_tokens[np.concatenate(epoch(batches))].tolist()) for _ in range(4)]
    assert seen == [[1, 2, 3, 4], [1, 2, 3, 4, 5, 5, 5], [1, 2, 3, 4, 5, 5, 5, 6], [1, 2, 3, 4, 5, 5, 5, 6]]
    fixed = SentenceBatches(data, batch_size=3, config=BatchesConfig(max_length=2))
    assert [epoch(fixed)[0] for _ in range(2)] == [[0, 1], [0, 1]]
    with pytest.raises(InputError, match="saved with other"):
        fixed.restore(SentenceBatches(data, batch_size=3, config=BatchesConfig(max_length=3)).state())


SIZES = st.integers(1, 20)


def plain_sorted(lengths: list[int], config: BatchesConfig, drawn: list[int]) -> list[list[int]]:
    """Groups of the drawn order, each sorted by length; equally long sentences stay as they were drawn."""
    groups = [drawn[start : start + config.group_size] for start in range(0, len(drawn), config.group_size)]
    return [sorted(group, key=lambda sentence: lengths[sentence]) for group in groups]


def plain_sampled(lengths: list[int], config: BatchesConfig, drawn: list[int]) -> list[list[int]]:
    """Groups of the sorted corpus, each in a drawn order: the sentence at place p has the lot ``drawn[p]``."""
    groups: list[list[tuple[int, int]]] = []
    shortest = 0
    for lot, sentence in zip(drawn, sorted(range(len(lengths)), key=lambda one: lengths[one]), strict=True):
        far = config.length_difference is not None and lengths[sentence] - shortest >= config.length_difference
        if not groups or far or len(groups[-1]) == config.group_size:
            groups.append([])
            shortest = lengths[sentence]
        groups[-1].append((lot, sentence))
    return [[sentence for _, sentence in sorted(group)] for group in groups]


def found(lengths: list[int], config: BatchesConfig, seed: int | None) -> list[list[int]]:
    generator = None if seed is None else np.random.default_rng(seed)
    order, groups = arrange(np.array(lengths, dtype=np.int64), config, generator)
    starts = [place for place in range(len(order)) if place == 0 or groups[place] != groups[place - 1]]
    assert all(one <= other for one, other in pairwise(groups.tolist()))
    return [order[start:stop].tolist() for start, stop in pairwise([*starts, len(order)])]


@given(LENGTHS, SIZES, st.none() | st.integers(0, 9))
def test_sorting_in_groups_is_the_plain_form(lengths: list[int], size: int, seed: int | None) -> None:
    config = BatchesConfig(group_size=size)
    assert config.scheme == "sort-in-groups"
    drawn = list(range(len(lengths)))
    if seed is not None:
        drawn = np.random.default_rng(seed).permutation(len(lengths)).tolist()
    assert found(lengths, config, seed) == plain_sorted(lengths, config, drawn)


@given(LENGTHS, SIZES, st.none() | st.integers(1, 30), st.none() | st.integers(0, 9))
def test_sampling_in_groups_is_the_plain_form(
    lengths: list[int], size: int, difference: int | None, seed: int | None
) -> None:
    config = BatchesConfig(scheme="sample-in-groups", group_size=size, length_difference=difference)
    drawn = list(range(len(lengths)))
    if seed is not None:
        drawn = np.random.default_rng(seed).permutation(len(lengths)).tolist()
    groups = found(lengths, config, seed)
    assert groups == plain_sampled(lengths, config, drawn)
    for group in groups:
        within = [lengths[sentence] for sentence in group]
        assert difference is None or max(within) - min(within) < difference
