"""The search on a GPU, computed on a CPU: what the search of the CPU finds, by one wait for the device a word."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from tests.models.pushdown.plain import PlainPushdown
from tests.models.pushdown.worlds import build_pushdown
from tests.models.rnng.worlds import Tokens
from tests.models.search.exhaustive import assert_all_derivations_are_found, run
from tests.models.search.same_on_device import assert_same_on_device, searching, waits_and_kernels
from treelm.models.search import on_device


@pytest.mark.parametrize("margin", [32, 0])
@pytest.mark.parametrize(
    "sizes",
    [
        {"action_beam": 20, "word_beam": 5, "fast_track": 2},
        {"threshold": 4.0, "action_beam": 8, "word_beam": 4},
        {"action_beam": 3, "word_beam": 20, "fast_track": 0},
        {"method": "particles", "num_particles": 20},
    ],
    ids=str,
)
def test_it_finds_what_the_cpu_finds(sizes: dict[str, Any], margin: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a margin many guesses are too small, and words are searched again."""
    monkeypatch.setattr(on_device, "_MARGIN", margin)
    model = build_pushdown(Tokens(40, 4), seed=5, max_stack=4)
    assert_same_on_device(model, [[3, 1, 37, 1, 5], [9, 2], [6], list(range(3, 23)), [36, 38, 39, 2, 2]], **sizes)


def test_an_exhaustive_beam_equals_enumeration() -> None:
    model = build_pushdown(Tokens(2), seed=1, num_layers=1, max_stack=2)
    with searching(on_device=True):
        assert_all_derivations_are_found(model, PlainPushdown(model), 3)


def test_it_waits_once_a_word_and_starts_as_many_kernels_for_many_sentences() -> None:
    model = build_pushdown(Tokens(40), seed=5, dtype=torch.float32, num_layers=1)
    few, many = waits_and_kernels(model)
    assert few[0] == many[0] == 1
    assert many[1] <= 1.5 * few[1]


def test_a_beam_may_run_dry() -> None:
    model = build_pushdown(Tokens(5, 1), seed=38, num_layers=1, max_stack=4)
    settings: dict[str, Any] = {"threshold": 1.5, "action_beam": 5, "word_beam": 2}
    tokens = [0, 4, 0, 1, 4, 0, 4, 0]
    assert run(model, [tokens], **settings)[0].log_masses[-1] == -np.inf
    assert_same_on_device(model, [tokens, tokens[:3]], **settings)
    assert_same_on_device(model, [tokens], **settings)
