"""The particle filter: unbiased, reproducible, batch-invariant, independent of what comes later."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.models.rnng.plain import PlainRNNG
from tests.models.rnng.search.test_beam import SENTENCES, TINY, run
from tests.models.rnng.worlds import Tokens, build_model
from tests.models.search.oracle import enumerate_all, log_sum
from tests.models.search.same_on_device import searching
from treelm.models.search.particles import systematic_counts


def test_every_cell_is_drawn_as_often_as_it_should_be() -> None:
    """Whole numbers next to their mean, which is exact over all random numbers; all of a row's particles are drawn."""
    rng = np.random.default_rng(1)
    masses, number = rng.random((20, 6)) * (rng.random((20, 6)) < 0.5), rng.integers(1, 9, 20)
    masses[0], number[:2] = 0.0, 1 << 20
    possible = masses.sum(1) > 0
    means = number[:, None] * masses / np.where(possible, masses.sum(1), 1.0)[:, None]
    draws = [systematic_counts(masses, number, np.full(20, random)) for random in (np.arange(1000) + 0.5) / 1000]
    np.testing.assert_allclose(np.mean(draws, 0), means, atol=0.0015)
    assert (np.sum(draws, 2) == number * possible).all()
    assert (abs(draws - means) < 1 + 1e-9).all()
    assert (systematic_counts(masses, number, np.full(20, np.nextafter(1, 0))).sum(1) == number * possible).all()


def test_many_particles_come_close() -> None:
    model = build_model(Tokens(3), 2, seed=1, **TINY)
    everything = enumerate_all(PlainRNNG(model), 2)
    (result,) = run(model, [[1, 1]], method="particles", num_particles=50_000)
    assert result.log_prob == pytest.approx(log_sum(everything.trees[(1, 1)].values()), abs=0.02)
    trees = everything.trees[(1, 1)]
    for one in result.derivations:
        assert one.log_prob == pytest.approx(trees[one.actions], abs=1e-9)
    assert result.derivations[0].actions == max(trees, key=lambda actions: trees[actions])


def test_neighbours_and_later_words_do_not_matter_and_seeds_do() -> None:
    model = build_model(
        Tokens(40), 4, seed=6, max_open=5, max_consecutive=3, dtype=torch.float32, embedding_size=32, hidden_size=32
    )
    settings = {"method": "particles", "num_particles": 30}
    alone = [run(model, [tokens], **settings)[0] for tokens in SENTENCES]
    assert repr(run(model, SENTENCES[::-1], **settings)[::-1]) == repr(alone)  # nan is not equal to itself
    (longer,) = run(model, [[*SENTENCES[0], 7]], **settings)
    assert longer.log_masses[:-1] == alone[0].log_masses
    assert run(model, SENTENCES, seed=1, **settings)[0].log_masses != alone[0].log_masses


def test_an_impossible_token_kills_all_particles() -> None:
    model = build_model(Tokens(5), 2, seed=1, **TINY)
    with torch.no_grad():
        model.word_bias[2] = -torch.inf
    for on_device in (False, True):
        with searching(on_device=on_device):
            dead, alive = run(model, [[1, 2, 3], [1, 3, 3]], method="particles", num_particles=10)
        assert dead.log_probs[1:].tolist() == [-np.inf] * 3
        assert dead.derivations == []
        assert np.isfinite(alive.log_probs).all()
