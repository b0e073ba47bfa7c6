"""Reading token by token gives what reading all at once gives, and states never change."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from tests.models.rnng.plain import PlainRNNG
from tests.models.rnng.search.test_interface import VARIANTS, WORDS, subword_model
from tests.models.rnng.worlds import Tokens, build_model
from tests.models.search.oracle import enumerate_all, log_sum
from treelm.errors import InputError
from treelm.models.search.config import SearchConfig

BIG = {"embedding_size": 32, "hidden_size": 32, "dtype": torch.float32}


@pytest.mark.parametrize("threshold", [math.inf, 4.0])
@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_word_by_word_equals_all_at_once_to_the_last_bit(variant: dict[str, Any], threshold: float) -> None:
    model = subword_model(**BIG, **variant)
    model.search = replace(model.search, threshold=threshold)
    for words, score in zip(WORDS, model.score(WORDS), strict=True):
        state = model.start()
        for word in words:
            state = model.extend(state, [word])
        assert list(state.token_log_probs[0]) == score.log_probs[:-1].tolist()
        np.testing.assert_array_equal(state.beam_converged[0], score.columns["beam_converged"])
        assert np.isnan(state.beam_converged[0]).all() == (threshold == math.inf)
        per_word = np.bincount(score.word_of_token, score.log_probs[:-1])
        assert [float(values[0]) for values in state.word_log_probs] == pytest.approx(per_word.tolist(), abs=1e-12)


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_next_tokens_of_an_exhaustive_beam_equal_enumeration(variant: dict[str, Any]) -> None:
    model = build_model(Tokens(3, num_unfinished=1), 2, seed=1, max_open=2, max_consecutive=2, **variant)
    model.search = SearchConfig(action_beam=100_000, word_beam=100_000)
    everything = enumerate_all(PlainRNNG(model), 2)
    for prefix in [(), *((token,) for token in range(3))]:
        state = model.start()
        for token in prefix:
            state = model.extend_tokens(state, [token])
        mass = log_sum(everything.prefixes[prefix]) if prefix else 0.0
        expected = [log_sum(everything.prefixes.get((*prefix, token), [])) - mass for token in range(3)]
        expected.append(log_sum(everything.trees.get(prefix, {}).values()) - mass)
        log_probs = model.next_word_log_probs(state)[0]
        assert log_probs.tolist() == pytest.approx(expected, abs=1e-9)
        assert float(log_probs.exp().sum()) == pytest.approx(1.0)


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_analyses_of_an_exhaustive_beam_have_the_shares_of_enumeration(variant: dict[str, Any]) -> None:
    model = build_model(Tokens(3, num_unfinished=1), 2, seed=1, max_open=2, max_consecutive=2, **variant)
    model.search = SearchConfig(action_beam=100_000, word_beam=100_000)
    everything = enumerate_all(PlainRNNG(model), 2)
    num_words = []
    for prefix in ((0, 2), (2,), (2, 1)):
        state = model.start()
        for token in prefix:
            state = model.extend_tokens(state, [token])
        if not model.vocabulary.ends_word[prefix[-1]]:
            continue
        num_words.append(len(state.words[0]))
        (found,) = model.partial_analyses(state, 100_000)
        joint = np.sort(everything.prefixes[prefix])[::-1]
        assert [one.share for one in found] == pytest.approx(np.exp(joint - log_sum(joint)).tolist(), abs=1e-9)
        assert all(tuple(one.tree.words()) == state.words[0] for one in found)
        assert len({one.tree for one in found}) == len(found), "different ways to read are different trees"
        assert len(model.partial_analyses(state, 2)[0]) == min(2, len(found))
    assert {1, 2} <= set(num_words)


@pytest.mark.parametrize("what", ["partial_trees", "partial_analyses"])
def test_no_tree_before_the_first_word_or_within_a_word(what: str) -> None:
    model = subword_model()
    for tokens, found in (([], "no word was read"), ([1], "within a word")):
        state = model.start()
        for token in tokens:
            state = model.extend_tokens(state, [token])
        with pytest.raises(InputError, match=found):
            getattr(model, what)(state)


def test_an_impossible_token_empties_the_beam() -> None:
    model = subword_model()
    with torch.no_grad():
        model.word_bias[5] = -torch.inf
    state = model.extend(model.start(), ["5"])
    state = model.extend(state, ["6"])
    assert state.token_log_probs == ((-np.inf, -np.inf),)
    assert (model.next_word_log_probs(state) == -torch.inf).all()
    with pytest.raises(InputError, match="empty"):
        model.partial_trees(state)
