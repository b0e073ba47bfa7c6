"""Groups of similar length, against the plain form: one sentence after another."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from treelm.corpora.batches import BatchesConfig, arrange
from treelm.errors import InputError

LENGTHS = st.lists(st.integers(1, 60), max_size=60)
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


def test_groups_that_are_sampled_stay_the_same_while_those_that_are_sorted_are_drawn_anew() -> None:
    lengths = np.random.default_rng(0).integers(1, 100, 300).tolist()
    members: dict[str, set[frozenset[int]]] = {"sort-in-groups": set(), "sample-in-groups": set()}
    for scheme, seen in members.items():
        config = BatchesConfig(scheme=scheme, group_size=50, length_difference=None)  # type: ignore[arg-type]
        for seed in range(4):
            seen.update(frozenset(group) for group in found(lengths, config, seed))
    assert len(members["sample-in-groups"]) == 6
    assert len(members["sort-in-groups"]) == 24


def test_every_order_of_a_sampled_group_is_as_likely() -> None:
    config = BatchesConfig(scheme="sample-in-groups")
    orders = [tuple(found([7, 3, 5], config, seed)[0]) for seed in range(600)]
    counts = [orders.count(order) for order in set(orders)]
    assert len(counts) == 6
    assert min(counts) > 70  # of 100 expected


@pytest.mark.parametrize("field", ["group_size", "length_difference"])
def test_impossible_groups_are_errors(field: str) -> None:
    with pytest.raises(InputError, match=f"{field} = 0; give 1 or more"):
        BatchesConfig(**{field: 0})
