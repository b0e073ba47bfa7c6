"""A generative parser's search against its plain form: one derivation, all of them, and a narrow beam."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pytest

from tests.models.search.oracle import Enumeration, Plain, enumerate_all, log_sum, plain_beam
from treelm.models.search.config import SearchConfig
from treelm.models.search.model import GenerativeParser
from treelm.models.search.sentences import SentenceResult, search_all

EXHAUSTIVE = {"action_beam": 100_000, "word_beam": 100_000}
SIZES = ("action_beam", "word_beam", "fast_track", "threshold")


def read_aloud(model: GenerativeParser, actions: Sequence[int], tokens: Sequence[int]) -> float:
    """log p(derivation) by the machine of the search, which forgets what it can after every word."""
    searchable = model.searchable()
    machine, head = searchable.machine(), searchable.head(1)
    analyses, coming, total = machine.start(1), iter(tokens), 0.0
    *actions, last = actions
    for action in actions:
        total += analyses.log_probs[0, action]
        if action == 0:
            token = next(coming)
            total += float(head.log_probs(analyses.outputs)[0, token])
            analyses = machine.shift(analyses, np.array([token]))
            analyses = analyses.renumbered(*machine.collect([analyses.top], [analyses.history]))
        else:
            analyses = machine.apply(analyses, np.array([0]), np.array([action]), np.zeros(1))
    return total + float(analyses.log_probs[0, last])


def run(model: GenerativeParser, sentences: Sequence[Sequence[int]], **settings: object) -> list[SentenceResult]:
    """The results of a search with these settings over sentences of tokens."""
    searchable, search = model.searchable(), SearchConfig(**settings)  # type: ignore[arg-type]
    return search_all(searchable, searchable.head(1), search, [np.array(tokens) for tokens in sentences])


def assert_all_derivations_are_found(model: GenerativeParser, plain: Plain, longest: int) -> Enumeration:
    """Over two tokens: prefixes, sentences and derivations of an exhaustive beam, whose mass is one."""
    everything = enumerate_all(plain, longest)
    sizes = range(1, longest + 1)
    sentences = [tokens for size in sizes for tokens in itertools.product(range(2), repeat=size)]
    sentences = [tokens for tokens in sentences if tokens in everything.trees]
    for tokens, result in zip(sentences, run(model, sentences, **EXHAUSTIVE), strict=True):
        trees = everything.trees[tokens]
        prefixes = [log_sum(everything.prefixes[tokens[:end]]) for end in range(1, len(tokens) + 1)]
        assert result.log_masses == pytest.approx(prefixes, abs=1e-9)
        assert result.log_prob == pytest.approx(log_sum(trees.values()), abs=1e-9)
        assert {one.actions: one.log_prob for one in result.derivations} == pytest.approx(trees, abs=1e-9)
        assert not np.any([result.metrics["beam_loss_bits"], result.metrics["beam_bound_bits"]])
    finished = log_sum(score for trees in everything.trees.values() for score in trees.values())
    assert float(np.exp(finished) + np.exp(log_sum(everything.unfinished))) == pytest.approx(1.0, abs=1e-9)
    found = model.probability_mass()
    assert found is not None
    assert found.finished > 0
    assert found.finished + found.unfinished == pytest.approx(1.0, abs=1e-9)
    return everything


def assert_narrow_beam_is_that_of_the_definition(
    model: GenerativeParser,
    plain: Plain,
    sentences: Sequence[Sequence[int]],
    action_beam: int,
    word_beam: int = 3,
    fast_track: int = 1,
) -> None:
    """Masses after every token, and the complete analyses."""
    results = run(model, sentences, action_beam=action_beam, word_beam=word_beam, fast_track=fast_track)
    for tokens, result in zip(sentences, results, strict=True):
        masses, finished = plain_beam(plain, list(tokens), action_beam, word_beam, fast_track)
        assert result.log_masses == pytest.approx(masses, abs=1e-9)
        assert [one.log_prob for one in result.derivations] == pytest.approx([one[0] for one in finished], abs=1e-9)


def assert_bits_are_those_of_what_is_pruned(
    model: GenerativeParser, plain: Plain, sentences: Sequence[Sequence[int]], *beam: float
) -> None:
    """What tokens have lost, and the bounds, for an action beam, a word beam, a fast track and a threshold."""
    for tokens, result in zip(sentences, run(model, sentences, **dict(zip(SIZES, beam, strict=True))), strict=True):
        bits = list[tuple[float, float]]()
        plain_beam(plain, list(tokens), *map(int, beam[:3]), beam[3], bits)
        found = [result.metrics[name] for name in ("beam_loss_bits", "beam_bound_bits")]
        np.testing.assert_allclose(np.array(found).T, bits, rtol=1e-9)
