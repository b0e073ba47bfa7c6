"""What a search says of the work between words: actions, and the two parts of surprisal."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from tests.models.rnng.search.test_interface import VARIANTS, WORDS, subword_model
from tests.models.rnng.worlds import Tokens, build_model
from treelm.models.scores import NATS_PER_BIT
from treelm.models.search.config import SearchConfig
from treelm.trees.transitions import REDUCE, SHIFT, to_actions


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_lexical_and_syntactic_surprisal_add_up(variant: dict[str, Any]) -> None:
    for score in subword_model(**variant).score(WORDS):
        bits = np.bincount(score.word_of_token, -score.log_probs[:-1] / NATS_PER_BIT)
        assert score.columns["lexical_bits"] + score.columns["syntactic_bits"] == pytest.approx(bits, abs=1e-9)
        assert (score.columns["lexical_bits"] >= 0).all()
        assert (score.columns["syntactic_bits"] >= -1e-9).all()


def test_lexical_surprisal_is_that_of_a_word_once_it_comes() -> None:
    model = build_model(Tokens(10), 3, seed=4, max_open=4, max_consecutive=3)
    model.search = SearchConfig(action_beam=20, word_beam=5, fast_track=1)
    with torch.no_grad():
        model.word_embedding.zero_()
        model.word_bias.zero_()
    (score,) = model.score([["5", "7", "5"]])
    assert score.columns["lexical_bits"] == pytest.approx([np.log2(10)] * 3, abs=1e-5)
    assert (score.columns["syntactic_bits"] > 0.01).all()


@pytest.mark.parametrize("order", ["top-down", "in-order"])
def test_a_single_analysis_has_the_actions_of_its_tree(order: str) -> None:
    model = build_model(Tokens(10), 3, seed=4, max_open=4, max_consecutive=3, order=order)
    model.search = SearchConfig(action_beam=1, word_beam=1, fast_track=1)
    words = ["5", "7", "5", "2"]
    analysis = model.analyse([words])[0]
    assert analysis.tree is not None
    assert analysis.score is not None
    between: list[list[int]] = [[]]
    for action in to_actions(analysis.tree, {label: i for i, label in enumerate(model.labels)}, model.config.order):
        if action == SHIFT:
            between.append([])
        else:
            between[-1].append(action)
    columns = analysis.score.columns
    assert columns["num_actions"].tolist() == [len(actions) for actions in between[:-1]]
    assert columns["num_reduces"].tolist() == [actions.count(REDUCE) for actions in between[:-1]]
    assert (columns["search_actions"] >= columns["num_actions"] + 1).all()
