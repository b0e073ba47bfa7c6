"""The search whose books are tensors: what the search of the CPU finds, by few waits for the device."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from tests.devices.pretended import DEVICE, pretended_device
from tests.models.rnng.plain import PlainRNNG
from tests.models.rnng.search.test_beam import TINY
from tests.models.rnng.search.test_interface import VARIANTS
from tests.models.rnng.worlds import Tokens, build_model
from tests.models.search.exhaustive import assert_all_derivations_are_found
from tests.models.search.same_on_device import assert_same_on_device, searching
from treelm.models.search import on_device
from treelm.models.search.analyses import best
from treelm.models.search.config import SearchConfig
from treelm.models.search.sentences import begin_search

FIXED = {"action_beam": 20, "word_beam": 5, "fast_track": 2}
NARROW = {"action_beam": 8, "word_beam": 3, "fast_track": 1}
ADAPTIVE = {"threshold": 4.0, "action_beam": 8, "word_beam": 4}
PARTICLES = {"method": "particles", "num_particles": 60}


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
@pytest.mark.parametrize(
    ("settings", "margin"),
    [(FIXED, 32), (ADAPTIVE, 0), ({**FIXED, "word_beam": 30, "fast_track": 0}, 0), (PARTICLES, 32), (PARTICLES, 0)],
    ids=str,
)
def test_it_finds_what_the_cpu_finds(
    variant: dict[str, Any], settings: dict[str, Any], margin: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a margin many guesses are too small, and words are searched again."""
    monkeypatch.setattr(on_device, "_MARGIN", margin)
    model = build_model(Tokens(40, 4), 4, seed=5, max_open=5, max_consecutive=3, **variant)
    assert_same_on_device(model, **settings)


def test_many_particles_are_drawn_as_on_a_cpu() -> None:
    """Hundreds of analyses have a number each, which only float64 holds well enough."""
    model = build_model(Tokens(10), 4, seed=11, max_open=5, max_consecutive=3)
    assert_same_on_device(model, [[3, 1, 4, 1, 5], [3, 1, 4, 2, 2]], method="particles", num_particles=1000, seed=11)


@pytest.mark.parametrize("order", ["top-down", "in-order"])
def test_an_exhaustive_beam_equals_enumeration(order: str) -> None:
    model = build_model(Tokens(2), 1, seed=1, order=order, **TINY)
    with searching(on_device=True):
        assert_all_derivations_are_found(model, PlainRNNG(model), 2)


@pytest.mark.parametrize("settings", [NARROW, PARTICLES], ids=["beam", "particles"])
def test_it_waits_once_a_word_and_starts_as_many_kernels_for_many_sentences(settings: dict[str, Any]) -> None:
    model = build_model(Tokens(40), 4, seed=5, dtype=torch.float32, max_open=5, max_consecutive=3).eval()
    first = [[token, 3, 1, 4, 1] for token in range(6)]
    waits, kernels = [], []
    for sentences in (first[:1], first):
        with pretended_device() as traffic:
            model.to(DEVICE)
            searchable = model.searchable()
            head = searchable.head(1)
            guessed = begin_search(searchable, head, SearchConfig(**settings), np.array([1]), in_few_calls=True)
            guessed.fork(np.zeros(len(sentences), np.int64))
            for column in np.array(sentences).T:  # counts are those of the last word, which can be guessed
                traffic.counts.clear()
                guessed.read(column)
            waits.append(traffic.num_waits)
            kernels.append(traffic.counts["kernels"])
    assert waits == [1, 1]
    assert kernels[1] <= 1.5 * kernels[0]


def test_of_equals_the_first_are_kept_and_in_their_order() -> None:
    values = np.random.default_rng(1).integers(0, 4, (50, 12)).astype(np.float64)
    values[values == 0] = -np.inf
    for count in (0, 1, 3, 12, 20):
        expected = best(values, count)
        marked = on_device._best(torch.from_numpy(values), count)
        assert (marked.numpy() == expected).all()
        places = on_device.chosen_places(marked, count).numpy()
        for row, wanted in zip(places, expected, strict=True):
            assert row[: wanted.sum()].tolist() == np.flatnonzero(wanted).tolist() or len(row) == 12
