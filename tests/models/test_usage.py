"""What users ask of any model, by its definition: perplexity, conditional scores, hidden states."""

from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional

from tests.models.rnng.plain import PlainRNNG
from tests.systems import SMALL, small_setup
from treelm.errors import InputError
from treelm.models.base import LanguageModel
from treelm.models.capabilities import Searching, TreeConditioned, has, set_search
from treelm.models.rnng.network import RNNG
from treelm.models.search.config import SearchConfig
from treelm.models.search.model import BeamState
from treelm.models.streams import StreamLM

SENTENCES = [["the", "cat", "sees", "a", "dog"], ["a", "bird", "hears"], ["the", "fish", "likes", "the", "old", "cat"]]
WITHOUT_STATES = {"ngram", "pcfg", "neural-pcfg", "chart"}
LMS = [name for name, small in SMALL.items() if small.system != "chart" and name != "shift-reduce parser"]


few_systems = pytest.mark.parametrize("lm", ["lstm", "ngram", "neural-pcfg", "rnng", "som"], indirect=True)
"""For what is computed the same way for every system, from scores and states that the conformance suite holds."""


@pytest.fixture(scope="module", params=LMS)
def lm(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> LanguageModel:
    folder: Path = tmp_path_factory.mktemp("small")
    model = small_setup(request.param, folder).model.eval()
    set_search(model, SearchConfig(action_beam=20, word_beam=5, threshold=8.0))
    if has(model, TreeConditioned):
        pytest.skip("predicts words given trees alone")
    return model


@few_systems
def test_perplexity_counts_the_ends_and_says_so(lm: LanguageModel) -> None:
    found = lm.perplexity(SENTENCES)
    nats = -sum(score.log_probs.sum() for score in lm.score(SENTENCES))
    assert found.value == pytest.approx(math.exp(nats / (5 + 3 + 6 + 3)))
    assert found.is_upper_bound == isinstance(lm, Searching)
    assert repr(found) == f"perplexity per word, with end of sentence: {'≤ ' * found.is_upper_bound}{found.value:.2f}"


@few_systems
def test_a_conditional_score_is_that_of_the_words_in_a_row(lm: LanguageModel) -> None:
    contexts, targets = ["the cat", "", ["a"]], ["sees a dog", "the cat", ["bird", "hears"]]
    expected = []
    for context, target in zip(contexts, targets, strict=True):
        state, total = lm.start(), 0.0
        for word in context.split() if isinstance(context, str) else context:
            state = lm.extend(state, [word])
        for word in target.split() if isinstance(target, str) else target:
            state, log_probs = lm.extend_scored(state, [word])
            total += log_probs[0]
        expected.append(total)
    assert lm.conditional_score(contexts, targets) == pytest.approx(expected, abs=1e-6)


def test_hidden_states_know_nothing_of_what_follows(lm: LanguageModel) -> None:
    if lm.system in WITHOUT_STATES:
        with pytest.raises(InputError, match=f"{lm.system} has no hidden states"):
            lm.hidden_states(SENTENCES)
        return
    found, begun = lm.hidden_states(SENTENCES), lm.hidden_states([words[:2] for words in SENTENCES])
    assert [one.shape for one in found] == [(len(words), found[0].shape[1]) for words in SENTENCES]
    for whole, part in zip(found, begun, strict=True):
        assert whole[:2] == pytest.approx(part, abs=1e-5)
    assert np.ptp(found[0], axis=0).max() > 1e-4  # words differ


def test_the_last_layer_predicts_the_next_word(lm: LanguageModel) -> None:
    if not isinstance(lm, StreamLM) and lm.system not in ("som", "shift-reduce"):
        pytest.skip("has no softmax over words right above it")
    state = lm.start()
    for word in SENTENCES[0]:
        state = lm.extend(state, [word])
    hidden = torch.from_numpy(lm.hidden_states(SENTENCES[:1])[0][-1])
    weight = lm.decoder_weight if isinstance(lm, StreamLM) else lm.embedding
    logits = functional.linear(hidden, weight.double(), lm.output_bias.double())
    assert torch.allclose(logits.log_softmax(0), lm.next_word_log_probs(state)[0].double(), atol=1e-6)


@pytest.mark.parametrize("name", ["lstm", "on-lstm", "palm", "transformer", "transformer stream", "prpn", "rnng"])
def test_layers_are_counted_from_below_or_from_the_last(tmp_path: Path, name: str) -> None:
    lm = small_setup(name, tmp_path).model.eval()
    number = 3 if name == "prpn" else 2  # with its predict network
    found = [lm.hidden_states(SENTENCES, layer=layer)[0] for layer in range(1, number + 1)]
    for one, layer in zip(found, range(-number, 0), strict=True):
        assert np.array_equal(one, lm.hidden_states(SENTENCES, layer=layer)[0])
    assert not any(np.allclose(one, other) for one, other in pairwise(found))
    for wrong in (0, number + 1, -number - 1):
        with pytest.raises(InputError, match=f"layer = {wrong} of a model with {number}"):
            lm.hidden_states(SENTENCES, layer=wrong)


@pytest.mark.parametrize("name", ["rnng", "rnng in-order documents", "rnng none"])
def test_states_of_an_rnng_are_at_the_top_of_the_best_stack(tmp_path: Path, name: str) -> None:
    lm = small_setup(name, tmp_path).model.eval()
    assert isinstance(lm, RNNG)
    plain, words = PlainRNNG(lm), SENTENCES[0]
    found = [lm.hidden_states([words], layer=layer)[0] for layer in (1, 2)]
    state, tokens = lm.start(), list[int]()
    for number, word in enumerate(words):
        state = BeamState.own(lm.extend(state, [word]))
        tokens = list(state.tokens[0])
        best = state.beam.analyses.ranked().take(np.array([0]))
        (actions,) = state.beam.machine.histories.actions(best.history)
        read, coming = plain.initial(), iter(tokens)
        for action in actions:
            read = plain.apply(read, action, next(coming) if action == 0 else None)
        for layer in (1, 2):
            expected = read.stack[-1].states[layer - 1][0].detach().numpy()
            assert found[layer - 1][number] == pytest.approx(expected, abs=1e-5)
