import json
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from treelm.corpora.batches import BatchesConfig, SentenceBatch, SentenceBatches
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


SCHEMES = (BatchesConfig(), BatchesConfig(scheme="sample-in-groups"))
LENGTHS = st.lists(st.integers(1, 60), max_size=60)
DATA = Lengths(np.random.default_rng(0).integers(1, 60, 500).tolist())


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


CONFIGS = st.builds(
    BatchesConfig,
    scheme=st.sampled_from([config.scheme for config in SCHEMES]),
    group_size=st.integers(1, 20),
    length_difference=st.none() | st.integers(1, 20),
)


@given(LENGTHS, st.integers(1, 9), st.none() | st.integers(1, 90), st.none() | st.integers(1, 60), CONFIGS)
def test_every_sentence_comes_once_and_budgets_hold(
    lengths: list[int], size: int, max_actions: int | None, max_tokens: int | None, config: BatchesConfig
) -> None:
    data = Lengths(lengths)
    batches = epoch(
        SentenceBatches(data, batch_size=size, max_actions=max_actions, max_tokens=max_tokens, config=config)
    )
    assert sorted(index for batch in batches for index in batch) == list(range(len(lengths)))
    for batch in batches:
        assert 1 <= len(batch) <= size
        if len(batch) > 1:
            assert max_actions is None or data.num_actions[batch].sum() <= max_actions
            assert max_tokens is None or data.num_tokens[batch].sum() <= max_tokens


@given(LENGTHS, st.integers(1, 9), st.none() | st.integers(1, 90), st.none() | st.integers(1, 60))
def test_batches_are_cut_as_if_sentence_by_sentence(
    lengths: list[int], size: int, max_actions: int | None, max_tokens: int | None
) -> None:
    data = Lengths(sorted(lengths))
    batches = SentenceBatches(data, batch_size=size, max_actions=max_actions, max_tokens=max_tokens, shuffle=False)
    expected = slow_cut([data.num_actions.tolist(), data.num_tokens.tolist()], [max_actions, max_tokens], size)
    assert [len(batch) for batch in epoch(batches)] == expected


def test_sentences_of_a_batch_are_neighbours_in_length_within_their_group() -> None:
    batches = epoch(SentenceBatches(DATA, batch_size=10, config=BatchesConfig(group_size=1000)))
    ranges = sorted((int(DATA.num_actions[b].min()), int(DATA.num_actions[b].max())) for b in batches)
    assert all(left[1] <= right[0] for left, right in pairwise(ranges))


def test_batches_of_sampled_groups_hold_lengths_of_one_group_and_other_sentences_in_every_epoch() -> None:
    sampled = SentenceBatches(
        DATA, batch_size=10, config=BatchesConfig(scheme="sample-in-groups", length_difference=15)
    )
    shortest = DATA.num_actions.min()  # every length up to 59 is there, so groups begin at 1, 16, 31 and 46
    epochs = [epoch(sampled) for _ in range(2)]
    for batch in epochs[0]:
        assert len({(DATA.num_actions[index] - shortest) // 15 for index in batch}) == 1
    first, second = ({frozenset(batch) for batch in batches if len(batch) > 1} for batches in epochs)
    assert not first & second


@pytest.mark.parametrize("config", SCHEMES)
def test_the_order_follows_from_the_seed_and_the_epoch(config: BatchesConfig) -> None:
    first, same, other = (SentenceBatches(DATA, batch_size=10, config=config, seed=seed) for seed in (1, 1, 2))
    order = epoch(first)
    assert order == epoch(same)
    assert order != epoch(other)
    assert order != epoch(first)  # the second epoch
    assert first.epoch == 2


def test_a_sentence_beyond_the_budget_is_a_batch_by_itself() -> None:
    assert sorted(map(len, epoch(SentenceBatches(Lengths([5, 99, 5]), batch_size=9, max_actions=20)))) == [1, 2]


@pytest.mark.parametrize("config", SCHEMES)
def test_without_shuffling_all_epochs_are_the_same_and_sorted(config: BatchesConfig) -> None:
    batches = SentenceBatches(DATA, batch_size=7, config=config, shuffle=False)
    order = epoch(batches)
    assert order == epoch(batches)
    lengths = [DATA.num_actions[index] for batch in order for index in batch]
    assert lengths == sorted(lengths)


@pytest.mark.parametrize("config", SCHEMES)
@pytest.mark.parametrize("stop", [0, 1, 17, 50])
def test_a_restored_position_continues_as_if_undisturbed(stop: int, config: BatchesConfig) -> None:
    undisturbed = SentenceBatches(DATA, batch_size=10, config=config, seed=3)
    epoch(undisturbed)
    rest = iter(undisturbed)
    for _ in range(stop):
        next(rest)
    state = json.loads(json.dumps(undisturbed.state()))
    resumed = SentenceBatches(DATA, batch_size=10, config=config, seed=3)
    resumed.restore(state)
    assert (resumed.epoch, resumed.position) == (1, stop)
    expected = [batch.tokens.tolist() for batch in rest]
    assert epoch(resumed) == expected
    assert epoch(resumed) == epoch(undisturbed)


@pytest.mark.parametrize(
    "other",
    [
        SentenceBatches(DATA, batch_size=10, seed=1),
        SentenceBatches(DATA, batch_size=11),
        SentenceBatches(Lengths([1, 2, 3]), batch_size=10),
        SentenceBatches(DATA, batch_size=10, config=BatchesConfig(group_size=8)),
        SentenceBatches(DATA, batch_size=10, config=BatchesConfig(scheme="sample-in-groups")),
    ],
)
def test_a_position_in_other_data_is_an_error(other: SentenceBatches) -> None:
    with pytest.raises(InputError, match="other"):
        other.restore(SentenceBatches(DATA, batch_size=10).state())


def test_a_position_in_groups_of_other_lengths_is_an_error() -> None:
    saved, other = (
        SentenceBatches(
            DATA, batch_size=10, config=BatchesConfig(scheme="sample-in-groups", length_difference=difference)
        )
        for difference in (20, None)
    )
    with pytest.raises(InputError, match="other limits"):
        other.restore(saved.state())


@pytest.mark.parametrize("damage", [{"position": 10**6}, {"position": "x"}, {"epoch": -1}])
def test_a_damaged_position_is_an_error(damage: dict[str, object]) -> None:
    batches = SentenceBatches(DATA, batch_size=10)
    with pytest.raises(InputError, match="undamaged"):
        batches.restore({**batches.state(), **damage})


@pytest.mark.parametrize("config", SCHEMES)
def test_ranks_share_the_batches_of_an_epoch(config: BatchesConfig) -> None:
    whole = epoch(SentenceBatches(DATA, batch_size=7, config=config))
    shares = [epoch(SentenceBatches(DATA, batch_size=7, config=config, rank=rank, world=3)) for rank in range(3)]
    assert len({len(share) for share in shares}) == 1
    mixed = [batch for step in zip(*shares, strict=True) for batch in step]
    assert mixed == whole[: len(mixed)]
    assert len(whole) - len(mixed) < 3


@pytest.mark.parametrize("config", SCHEMES)
def test_the_number_of_batches_is_known_beforehand(config: BatchesConfig) -> None:
    batches = SentenceBatches(DATA, batch_size=7, max_actions=100, config=config)
    assert len(batches) == len(epoch(batches))


@pytest.mark.parametrize("config", SCHEMES)
def test_no_sentences_are_no_batches(config: BatchesConfig) -> None:
    assert epoch(SentenceBatches(Lengths([]), batch_size=7, config=config)) == []


@pytest.mark.parametrize("limits", [{"batch_size": 0}, {"batch_size": 1, "max_actions": 0}])
def test_impossible_limits_are_errors(limits: dict[str, int]) -> None:
    with pytest.raises(InputError):
        SentenceBatches(DATA, **limits)


def test_sentences_beyond_the_longest_are_left_out_and_every_epoch_has_longer_ones() -> None:
    data = Lengths([*range(0, 20, 2), 8, 8])  # actions: tokens are half of them and one, 1 to 10
    batches = SentenceBatches(data, batch_size=2, config=BatchesConfig(first_max_length=4, max_length=6))
    seen = [sorted(data.num_tokens[np.concatenate(epoch(batches))].tolist()) for _ in range(4)]
    assert seen == [[1, 2, 3, 4], [1, 2, 3, 4, 5, 5, 5], [1, 2, 3, 4, 5, 5, 5, 6], [1, 2, 3, 4, 5, 5, 5, 6]]
    fixed = SentenceBatches(data, batch_size=3, config=BatchesConfig(max_length=2))
    assert [epoch(fixed)[0] for _ in range(2)] == [[0, 1], [0, 1]]
    with pytest.raises(InputError, match="saved with other"):
        fixed.restore(SentenceBatches(data, batch_size=3, config=BatchesConfig(max_length=3)).state())


@pytest.mark.parametrize(
    "wrong", [{"max_length": 0}, {"first_max_length": 3}, {"first_max_length": 3, "max_length": 2}]
)
def test_impossible_longest_sentences_are_errors(wrong: dict[str, int]) -> None:
    with pytest.raises(InputError, match="max_length"):
        BatchesConfig(**wrong)
