"""What RNNG offers on top of the search: scores, trees, and their contracts."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch

from tests.models.rnng.plain import PlainRNNG
from tests.models.rnng.worlds import Tokens, build_model
from treelm.models.rnng.network import RNNG
from treelm.models.search.config import SearchConfig
from treelm.trees.transitions import to_actions

WORDS = [["0+1+5", "7", "2+6"], ["5"], ["8", "1+9", "5", "5"]]
VARIANTS: list[dict[str, Any]] = [
    {"order": order, "composition": composition}
    for order in ("top-down", "in-order")
    for composition in ("lstm", "none", "attention")
]


def subword_model(**config: Any) -> RNNG:
    model = build_model(Tokens(10, num_unfinished=3), 3, seed=4, max_open=4, max_consecutive=3, **config)
    model.search = SearchConfig(action_beam=20, word_beam=5, fast_track=1)
    return model


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_trees_are_over_the_words_and_have_the_models_probability(variant: dict[str, Any]) -> None:
    model = subword_model(**variant)
    plain = PlainRNNG(model)
    for words, trees in zip(WORDS, model.parse_nbest(WORDS, 3), strict=True):
        assert len({one.tree for one in trees}) == 3
        assert [one.log_prob for one in trees] == sorted((one.log_prob for one in trees), reverse=True)
        for one in trees:
            assert one.tree.words() == words
            actions = to_actions(one.tree, {label: i for i, label in enumerate(model.labels)}, model.config.order)
            pieces = [list(map(int, word.split("+"))) for word in words]
            lengths = iter([len(word) for word in pieces])
            spelled = [a for action in actions for a in [action] * (next(lengths) if action == 0 else 1)]
            with torch.no_grad():
                log_prob = sum(plain.log_prob(spelled, [piece for word in pieces for piece in word]))
            assert one.log_prob == pytest.approx(float(log_prob), abs=1e-9)


def _loaded(model: RNNG) -> None:
    model.load_state_dict({name: 0.5 * value for name, value in model.state_dict().items()})


def _edited(model: RNNG) -> None:
    for parameter in model.parameters():
        parameter.data.mul_(0.5)  # which no version counter of torch notices


@pytest.mark.parametrize("change", [_loaded, _edited, RNNG.float], ids=["load", "edit", "to"])
def test_search_sees_every_change_of_the_parameters(change: Callable[[RNNG], object]) -> None:
    model = subword_model()
    before = model.score(WORDS)[0].log_probs
    change(model)
    after = model.score(WORDS)[0].log_probs
    anew = subword_model().to(model.word_bias.dtype)
    anew.load_state_dict(model.state_dict())
    assert after.tolist() != before.tolist()
    assert after.tolist() == anew.score(WORDS)[0].log_probs.tolist()


@pytest.mark.parametrize("order", ["top-down", "in-order"])
def test_a_sentence_may_have_more_words_than_python_calls_itself(order: str) -> None:
    model = subword_model(order=order)
    model.search = SearchConfig(action_beam=4, word_beam=2, fast_track=1)
    words = [str(3 + index * index % 7) for index in range(80)]
    with shallow_recursion():
        (analysis,) = model.analyse([words])
    assert analysis.tree is not None
    assert analysis.score is not None
    assert analysis.tree.words() == words
    assert len(analysis.score.log_probs) == 81
    assert np.isfinite(analysis.score.log_probs).all()


@contextmanager
def shallow_recursion() -> Iterator[None]:
    """Python may call itself no more than 60 levels deeper than now, less than the words of the sentence."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack(0)) + 60)
    try:
        yield
    finally:
        sys.setrecursionlimit(before)
