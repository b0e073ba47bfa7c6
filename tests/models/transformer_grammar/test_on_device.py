"""The search on a GPU, computed on a CPU: what the search of the CPU finds, by few waits for the device."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from tests.models.rnng.worlds import Tokens
from tests.models.search.exhaustive import assert_all_derivations_are_found, run
from tests.models.search.same_on_device import assert_same_on_device, searching, waits_and_kernels
from tests.models.transformer_grammar.plain_bottom_up import plain_of
from tests.models.transformer_grammar.worlds import PLM, VARIANTS, build_grammar
from treelm.models.layers.devices import computing
from treelm.models.search import on_device
from treelm.models.search.config import SearchConfig

TINY = {"max_open": 2, "max_consecutive": 2, "max_stack": 2, "max_unary": 1}


@pytest.mark.parametrize("variant", VARIANTS.values(), ids=VARIANTS)
def test_it_finds_what_the_cpu_finds(variant: dict[str, Any]) -> None:
    model = build_grammar(Tokens(12, 2), 2, seed=5, max_open=3, max_consecutive=2, max_stack=4, **variant)
    assert_same_on_device(model, [[3, 1, 11], [10, 11, 2], [6]], action_beam=6, word_beam=3, fast_track=1)


@pytest.mark.parametrize("variant", [{}, VARIANTS["bottom-up"]], ids=["top-down", "bottom-up"])
@pytest.mark.parametrize(
    "sizes",
    [
        {"threshold": 4.0, "action_beam": 8, "word_beam": 4},
        {"action_beam": 5, "word_beam": 20, "fast_track": 0},
        {"action_beam": 1, "word_beam": 1, "fast_track": 1},
        {"method": "particles", "num_particles": 20},
    ],
    ids=str,
)
def test_small_guesses_and_other_beams_change_nothing(
    variant: dict[str, Any], sizes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a margin many guesses are too small, and words are searched again."""
    monkeypatch.setattr(on_device, "_MARGIN", 0)
    model = build_grammar(Tokens(40, 4), 3, seed=5, num_layers=1, max_open=5, max_consecutive=3, **variant)
    assert_same_on_device(model, **sizes)


def test_a_long_sentence_and_starts_of_documents() -> None:
    """Where nothing is hidden, lists grow with every position, over several widths."""
    model = build_grammar(
        Tokens(12), 2, max_open=3, max_consecutive=2, context="document", context_size=4, num_layers=1
    )
    sentences = np.random.default_rng(1).integers(0, 12, (2, 6)).tolist()
    starts = torch.randn(2, 6, dtype=torch.float64)
    assert_same_on_device(model, sentences, starts, action_beam=4, word_beam=2)
    assert_same_on_device(model, sentences, starts, method="particles", num_particles=20)
    model = build_grammar(Tokens(12), 2, max_open=3, max_consecutive=2, num_layers=1, **PLM)
    sentence = np.random.default_rng(1).integers(0, 12, 25).tolist()
    assert_same_on_device(model, [sentence, sentence[:3]], action_beam=4, word_beam=2)


def test_after_many_improbable_words_nothing_is_lost_if_nothing_was_pruned() -> None:
    """Where a little was pruned long before, the search of the CPU reports the same."""
    model = build_grammar(Tokens(40), 3, seed=5, num_layers=1, max_open=1, max_consecutive=1)
    sentences = np.random.default_rng(0).integers(0, 40, (2, 12)).tolist()
    for gpu in (False, True):
        with searching(on_device=gpu):
            for result in run(model, sentences, action_beam=1000, word_beam=1000):
                assert result.log_masses[-1] < -40
                assert not np.any([result.metrics["beam_loss_bits"], result.metrics["beam_bound_bits"]])
    model = build_grammar(Tokens(40), 3, seed=5, num_layers=1, max_open=2, max_consecutive=2)
    assert_same_on_device(model, sentences, action_beam=200, word_beam=200, threshold=16.0)


@pytest.mark.parametrize("name", ["TG", "bottom-up"])
def test_an_exhaustive_beam_equals_enumeration(name: str) -> None:
    model = build_grammar(Tokens(2), 1, seed=1, num_layers=1, **TINY, **VARIANTS[name])
    with searching(on_device=True):
        assert_all_derivations_are_found(model, plain_of(model), 2)


def test_it_waits_twice_a_word_and_starts_as_many_kernels_for_many_sentences() -> None:
    """The second wait is for attention entropies, which are metrics of words."""
    model = build_grammar(Tokens(40), 2, seed=5, dtype=torch.float32, num_layers=1, max_open=2, max_consecutive=2)
    few, many = waits_and_kernels(model)
    assert few[0] == many[0] == 2
    assert many[1] <= 1.5 * few[1]


def test_as_many_sentences_are_searched_at_once_as_memory_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    model = build_grammar(Tokens(12), 2, seed=5, num_layers=1, max_open=3, max_consecutive=2)
    machine, settings = model.searchable().on_device, SearchConfig(action_beam=4, word_beam=2)
    assert machine is not None
    with computing(in_few_calls=True):
        a_place = 16 * machine().row_bytes + 64 * 4  # four actions
        # Integers, keys and values, output, log probabilities, one list.
        assert machine().row_bytes == 8 * (12 + 2 * 6 + 6 + 4 + 16)
    for free, number in ((1, 1), (2 * 4 * a_place * 3 + 1, 3), (1 << 60, 1024)):
        monkeypatch.setattr(on_device, "free_memory", lambda device, free=free: free)
        with computing(in_few_calls=True):
            assert on_device.sentences_at_once(machine(), settings, torch.device("cpu")) == number
    monkeypatch.setattr(on_device, "free_memory", lambda device: 2 * 4 * a_place * 2)
    assert_same_on_device(model, [[3, 1], [2], [6, 5], [3, 2]], action_beam=4, word_beam=2)
