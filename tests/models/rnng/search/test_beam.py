"""Beam search against enumeration and against the plain beam search."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch

from tests.models.rnng.plain import PlainRNNG
from tests.models.rnng.search.test_interface import VARIANTS
from tests.models.rnng.worlds import Tokens, build_model
from tests.models.search.exhaustive import EXHAUSTIVE, assert_all_derivations_are_found
from tests.models.search.oracle import enumerate_all, log_sum, plain_beam
from treelm.models.rnng.network import RNNG
from treelm.models.search.config import SearchConfig
from treelm.models.search.machine import WordHead
from treelm.models.search.metrics import converged
from treelm.models.search.pruning import NARROWER
from treelm.models.search.sentences import SentenceResult, search_all

SENTENCES = [[3, 1, 4, 1, 5], [9, 2], [6], [5, 3, 5, 8, 9, 7, 9], [1, 1, 1], [0, 2, 4, 6]]
TINY = {"max_open": 2, "max_consecutive": 2}
TOP_DOWN, IN_ORDER = ({"order": order, "composition": "none"} for order in ("top-down", "in-order"))
"""Of both orders the form that is computed soonest: what a search keeps does not depend on how items are composed."""


def run(
    model: RNNG, sentences: list[list[int]], *, head: WordHead | None = None, **settings: Any
) -> list[SentenceResult]:
    searchable, search = model.searchable(), SearchConfig(**settings)
    head = head or searchable.head(search.heavy_words)
    return search_all(searchable, head, search, [np.array(tokens) for tokens in sentences])


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_an_exhaustive_beam_equals_enumeration(variant: dict[str, Any]) -> None:
    model = build_model(Tokens(2), 2, seed=1, **TINY, **variant)
    assert_all_derivations_are_found(model, PlainRNNG(model), 2)
    for result in run(model, [[1, 0]], **EXHAUSTIVE):
        assert result.log_probs.sum() == pytest.approx(result.log_prob)
        assert max(result.metrics["beam_loss_bits"]) == max(result.metrics["beam_bound_bits"]) == 0


@pytest.mark.parametrize(
    ("beams", "variant"),
    [
        *(((6, 3, 1), variant) for variant in VARIANTS[::2]),
        *((beams, IN_ORDER) for beams in ((20, 5, 2), (8, 8, 0), (1, 1, 1), (40, 3, 3))),
    ],
    ids=str,
)
def test_bounds_and_sharing_change_nothing(beams: tuple[int, int, int], variant: dict[str, Any]) -> None:
    model = build_model(Tokens(40), 4, seed=5, max_open=5, max_consecutive=3, **variant)
    widths = dict(zip(("action_beam", "word_beam", "fast_track"), beams, strict=True))
    expected = [plain_beam(PlainRNNG(model), tokens, *beams) for tokens in SENTENCES[:3]]
    for extra in ({"heavy_words": 40}, {"heavy_words": 6}, {"heavy_words": 6, "max_rows": 1}):
        head = model.searchable().head(extra["heavy_words"])
        for _ in range(2):  # the second time the heavy tokens are known
            for result, (masses, finished) in zip(
                run(model, SENTENCES[:3], head=head, **widths, **extra), expected, strict=True
            ):
                assert result.log_masses == pytest.approx(masses, abs=1e-9)
                assert [one.log_prob for one in result.derivations] == pytest.approx(
                    [score for score, _, _ in finished], abs=1e-9
                )
                assert [one.actions for one in result.derivations] == [actions for _, _, actions in finished]


@pytest.mark.parametrize("variant", [TOP_DOWN, IN_ORDER], ids=str)
@pytest.mark.parametrize("threshold", [2.0, 3.0])
def test_a_threshold_drops_what_lies_too_far_below_all_together(threshold: float, variant: dict[str, Any]) -> None:
    model = build_model(Tokens(40), 4, seed=5, max_open=5, max_consecutive=3, **variant)
    results = run(model, SENTENCES[:4], action_beam=30, word_beam=12, fast_track=1, threshold=threshold)
    without = run(model, SENTENCES[:4], action_beam=30, word_beam=12, fast_track=1)
    for tokens, result in zip(SENTENCES[:4], results, strict=True):
        masses, finished = plain_beam(PlainRNNG(model), tokens, 30, 12, 1, threshold)
        assert result.log_masses == pytest.approx(masses, abs=1e-9)
        assert result.derivations[0].actions == finished[0][2]
    assert any(result.log_masses != other.log_masses for result, other in zip(results, without, strict=True))


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_the_bound_holds_against_enumeration(variant: dict[str, Any]) -> None:
    model = build_model(Tokens(3), 2, seed=2, **TINY, **variant)
    everything = enumerate_all(PlainRNNG(model), 2)
    sentences = [list(tokens) for tokens in itertools.product(range(3), repeat=2)]
    for beams in ((2, 1, math.inf), (6, 3, math.inf), (100, 100, 2.0), (100_000, 100_000, math.inf)):
        widths = dict(zip(("action_beam", "word_beam", "threshold"), beams, strict=True))
        missed = []
        for tokens, result in zip(sentences, run(model, sentences, **widths), strict=True):
            for end, (found, bits) in enumerate(
                zip(result.log_masses, result.metrics["beam_bound_bits"], strict=True), start=1
            ):
                missed.append(log_sum(everything.prefixes[tuple(tokens[:end])]) - found)
                assert -1e-9 <= missed[-1] <= bits * math.log(2) + 1e-9
                assert beams[0] < 100_000 or bits == 0
        assert (max(missed) > 0.01) == (beams[0] < 100_000)  # there was something to bound


def test_words_have_converged_where_a_narrower_search_says_the_same() -> None:
    assert converged(np.array([0.01, 0.02, 0.3, 0.3, 0.1])).tolist() == [1, 1, 0, 1, 0]
    assert converged(np.array([0.0, np.inf, np.inf])).tolist() == [1, 0, 0]
    assert converged(np.log(2) * np.array([0.09, 0.2, 0.11, 0.0])).tolist() == [1, 0, 1, 0]  # 0.1 bit
    assert np.isnan(converged(np.array([np.nan]))).all()
    model = build_model(Tokens(3), 2, seed=2, **TINY)
    sentences = [list(tokens) for tokens in itertools.product(range(3), repeat=2)]
    for threshold, loses in ((3.0, True), (50.0, False)):
        results = run(model, sentences, threshold=threshold, **EXHAUSTIVE)
        assert any((result.gaps > 1e-9).any() for result in results) == loses
    for result in run(model, sentences, threshold=50.0, action_beam=2, word_beam=1):  # room for one analysis
        assert not converged(result.gaps).any()
    for result in run(model, sentences, threshold=50.0, action_beam=EXHAUSTIVE["action_beam"], word_beam=2):
        assert not converged(result.gaps).any()


@pytest.mark.parametrize("variant", [TOP_DOWN, IN_ORDER], ids=str)
@pytest.mark.parametrize("threshold", [4.0, 6.0, 8.0])
def test_what_counts_as_found_by_a_narrower_search_is_no_more_than_one_finds(
    threshold: float, variant: dict[str, Any]
) -> None:
    model = build_model(Tokens(3), 2, seed=2, **{**TINY, **variant})
    sentences = [list(tokens) for tokens in itertools.product(range(3), repeat=3)][::4]
    wide = run(model, sentences, threshold=threshold, **EXHAUSTIVE)
    narrow = run(model, sentences, threshold=threshold - NARROWER, **EXHAUSTIVE)
    for one, other in zip(wide, narrow, strict=True):
        masses = np.array(other.log_masses)
        assert (np.array(one.metrics["narrow_log_mass"]) <= masses + 1e-9).all()
        change = np.abs(np.diff([0, *one.log_masses]) - np.diff([0, *masses])) / np.log(2)
        assert (change[converged(one.gaps) == 1] <= 0.1 + 1e-9).all()


def test_words_that_are_said_to_have_converged_are_right_in_worlds_that_can_be_enumerated() -> None:
    """Nothing is said of fixed beams, which agree with themselves however much they have lost."""
    model = build_model(Tokens(3), 2, seed=0, **TINY)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter *= 2  # doubtful here, certain there
    everything = enumerate_all(PlainRNNG(model), 3)
    sentences = [list(tokens) for tokens in itertools.product(range(3), repeat=3)][::5]
    masses = [[log_sum(everything.prefixes[tuple(tokens[:end])]) for end in (1, 2, 3)] for tokens in sentences]
    true = np.diff(masses, prepend=0) / np.log(2)

    def searched(*beam: float) -> tuple[list[float], list[float]]:
        widths = dict(zip(("action_beam", "word_beam", "fast_track", "threshold"), beam, strict=False))
        results = run(model, sentences, **widths)
        found = np.diff([one.log_masses for one in results], prepend=0) / np.log(2)
        flags = np.array([converged(one.gaps) for one in results])
        return np.abs(found - true).ravel().tolist(), flags.ravel().tolist()

    for fixed in ((4, 12, 1), (8, 8, 1), (100_000, 100_000, 1)):  # a word beam large beside the action beam
        off, flags = searched(*fixed)
        assert np.isnan(flags).all()
        assert (max(off) > 1.0) == (fixed[0] < 100)
    for adaptive in ((12, 6, 1, 10.0), (20, 4, 1, 8.0), (6, 3, 1, 6.0), (1000, 100, 1, 10.0)):
        off, flags = searched(*adaptive)
        assert max((value for value, flag in zip(off, flags, strict=True) if flag == 1), default=0) <= 0.1
        assert (max(off) > 1.0) == (adaptive[0] < 100)
    assert set(flags) == {1}  # of the widest, which loses nothing


@pytest.mark.parametrize(
    ("sizes", "beams", "threshold"),
    [
        ((40, 4), (6, 3, 1), math.inf),
        ((41, 5), (30, 5, 2), 4.0),
        ((1001, 27), (30, 5, 2), math.inf),
        ((1001, 27), (6, 3, 1), 4.0),
    ],
    ids=str,
)
def test_neighbours_and_later_words_do_not_matter_to_the_last_bit(
    sizes: tuple[int, int], beams: tuple[int, int, int], threshold: float
) -> None:
    vocabulary_size, num_labels = sizes
    dimensions = {"embedding_size": 32, "hidden_size": 48}
    model = build_model(
        Tokens(vocabulary_size), num_labels, seed=6, max_open=5, max_consecutive=3, dtype=torch.float32, **dimensions
    )
    widths: dict[str, Any] = dict(zip(("action_beam", "word_beam", "fast_track"), beams, strict=True))
    widths["threshold"] = threshold
    alone = [run(model, [tokens], **widths, heavy_words=6)[0] for tokens in SENTENCES]
    for order in (range(6), range(5, -1, -1), [*range(6), *range(6)]):
        results = run(model, [SENTENCES[index] for index in order], **widths, heavy_words=6)
        for index, result in zip(order, results, strict=True):
            assert repr(result) == repr(alone[index])  # where nothing was compared is nan, which is not itself
    for tokens, result in zip(SENTENCES, alone, strict=True):
        (longer,) = run(model, [[*tokens, 7, 8]], **widths, heavy_words=6)
        assert longer.log_masses[: len(tokens)] == result.log_masses


def test_an_empty_beam_gives_probability_zero_from_there_on() -> None:
    model = build_model(Tokens(5), 3, seed=1, max_open=3, max_consecutive=3)
    with torch.no_grad():
        model.word_bias[2] = -np.inf  # an impossible token
    impossible, possible = run(model, [[1, 2, 3], [1, 3]], action_beam=5, word_beam=2)
    assert np.isfinite(impossible.log_probs[0])
    assert impossible.log_probs[1:].tolist() == [-np.inf] * 3
    assert impossible.log_prob == -np.inf
    assert impossible.derivations == []
    assert np.isfinite(possible.log_probs).all()
