"""The search on a machine that has no network: all that it promises holds for whatever keeps the protocol."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from tests.models.search.exhaustive import (
    EXHAUSTIVE,
    assert_bits_are_those_of_what_is_pruned,
    assert_narrow_beam_is_that_of_the_definition,
    run,
)
from tests.models.search.oracle import enumerate_all, log_sum
from tests.models.search.toy import Toy
from treelm.errors import InputError
from treelm.models.search.config import SearchConfig
from treelm.trees.transitions import Order, from_actions

LONGEST: dict[Order, int] = {"top-down": 3, "in-order": 2}  # tokens of what is enumerated
both_orders = pytest.mark.parametrize("order", ["top-down", "in-order"])


def all_sentences(vocabulary_size: int, longest: int) -> list[list[int]]:
    lengths = range(1, longest + 1)
    return [list(tokens) for length in lengths for tokens in itertools.product(range(vocabulary_size), repeat=length)]


@both_orders
@pytest.mark.parametrize("max_rows", [1, 1 << 11])
def test_an_exhaustive_beam_equals_enumeration(order: Order, max_rows: int) -> None:
    toy = Toy(order)
    everything, sentences = enumerate_all(toy.config, LONGEST[order]), all_sentences(3, LONGEST[order])
    toy.search = SearchConfig(**EXHAUSTIVE, max_rows=max_rows)
    parses = toy.parse([[str(token) for token in tokens] for tokens in sentences])
    found = run(toy, sentences, **EXHAUSTIVE, max_rows=max_rows)
    for tokens, tree, result in zip(sentences, parses, found, strict=True):
        trees = everything.trees[tuple(tokens)]
        prefixes = [log_sum(everything.prefixes[tuple(tokens[:end])]) for end in range(1, len(tokens) + 1)]
        assert result.log_masses == pytest.approx(prefixes, abs=1e-9)
        assert result.log_prob == pytest.approx(log_sum(trees.values()), abs=1e-9)
        assert {one.actions: one.log_prob for one in result.derivations} == pytest.approx(trees, abs=1e-9)
        best = max(trees, key=lambda actions: trees[actions])
        assert tree == from_actions(best, [str(token) for token in tokens], toy.labels, order)


@both_orders
@pytest.mark.parametrize("beams", [(4, 2, 1), (9, 5, 0), (1, 1, 1)], ids=str)
def test_a_narrow_beam_is_the_one_of_the_definition(order: Order, beams: tuple[int, int, int]) -> None:
    toy = Toy(order, vocabulary_size=9, num_labels=3, max_open=4, max_labels=3)
    toy.config.word_logits[::2, ::2] = -np.inf  # impossible there, as is all that a rough bound looks at
    sentences = [[3, 1, 4, 1, 5], [2, 6], [5]]
    assert_narrow_beam_is_that_of_the_definition(toy, toy.config, sentences, *beams)


@both_orders
@pytest.mark.parametrize("beam", [(4, 2, 1, 1e6), (9, 5, 0, 3.0), (100, 3, 2, 2.0), (200, 200, 1, 14.0)], ids=str)
def test_bits_are_those_of_what_is_pruned(order: Order, beam: tuple[int, int, int, float]) -> None:
    """After many improbable words too, before which nothing or very little was pruned."""
    toy = Toy(order, vocabulary_size=9)
    rare = int(toy.config.word_logits.max(0).argmin())
    assert_bits_are_those_of_what_is_pruned(toy, toy.config, [[3, 1, 4, 1, 5], [2, 6], [rare] * 8], *beam)


@both_orders
def test_next_words_of_an_exhaustive_beam_equal_enumeration(order: Order) -> None:
    toy = Toy(order)
    toy.search = SearchConfig(**EXHAUSTIVE)
    everything = enumerate_all(toy.config, LONGEST[order])
    for prefix in [(), *map(tuple, all_sentences(3, LONGEST[order] - 1))]:
        state = toy.start()
        for token in prefix:
            state = toy.extend(state, [str(token)])
        mass = log_sum(everything.prefixes[prefix]) if prefix else 0.0
        expected = [log_sum(everything.prefixes[(*prefix, token)]) - mass for token in range(3)]
        expected.append(log_sum(everything.trees.get(prefix, {}).values()) - mass)
        log_probs = toy.next_word_log_probs(state)[0]
        assert log_probs.tolist() == pytest.approx(expected, abs=1e-9)
        assert float(log_probs.exp().sum()) == pytest.approx(1.0, abs=1e-9)
        if prefix:
            assert toy.partial_trees(state)[0].words() == [str(token) for token in prefix]


@both_orders
def test_particles_are_unbiased(order: Order) -> None:
    toy = Toy(order)
    everything = enumerate_all(toy.config, 2)
    exact = [log_sum(everything.prefixes[(2,)]), log_sum(everything.prefixes[(2, 0)])]
    exact.append(log_sum(everything.trees[(2, 0)].values()))
    runs = [run(toy, [[2, 0]], method="particles", num_particles=20, seed=seed)[0] for seed in range(200)]
    estimates = np.exp([[*one.log_masses, one.log_prob] for one in runs]) / np.exp(exact)
    error = estimates.std(0) / np.sqrt(len(runs))
    assert (abs(estimates.mean(0) - 1) < 4 * error + 1e-9).all()
    assert (error < 0.05).all()


def test_a_search_that_only_another_system_has_is_refused() -> None:
    toy = Toy("top-down")
    with pytest.raises(InputError, match="search by 'released'"):
        toy.search = replace(toy.search, method="released")
