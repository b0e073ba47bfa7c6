"""What sentences begin with is searched once, and nothing changes by it."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.models.rnng.worlds import Tokens, build_model
from treelm.models.base import SentenceScore
from treelm.models.rnng.machine import StackMachine
from treelm.models.rnng.network import RNNG
from treelm.models.search.analyses import AnalysisTable
from treelm.models.search.config import SearchConfig
from treelm.models.search.model import ScoredTree
from treelm.models.search.rows import Ints

SENTENCES = ["2 3 4 2", "2 3 4", "2 3 0+4 3", "2 3 0+1+4 2 2", "3 3", "2 3 4 2", "0+2", "2 4 4 4 4 3", "2 3 4 2 3"]


def said(model: RNNG, sentences: list[list[str]], **changes: Any) -> list[tuple[SentenceScore, list[ScoredTree]]]:
    before, model.search = model.search, replace(model.search, **changes)
    found = list(zip(model.score(sentences), model.parse_nbest(sentences, 3), strict=True))
    model.search = before
    return found


def assert_same(one: list[tuple[SentenceScore, list[ScoredTree]]], other: list[Any], tolerance: float = 1e-9) -> None:
    for (score, trees), (expected, expected_trees) in zip(one, other, strict=True):
        np.testing.assert_allclose(score.log_probs, expected.log_probs, rtol=0, atol=tolerance)
        for name, values in score.columns.items():
            np.testing.assert_allclose(values, expected.columns[name], rtol=0, atol=tolerance)
        assert [tree.tree for tree in trees] == [tree.tree for tree in expected_trees]


@pytest.mark.parametrize(
    ("order", "composition"),
    [("top-down", "lstm"), ("in-order", "attention"), ("top-down", "none"), ("in-order", "none")],
)
def test_sentences_say_the_same_as_if_each_were_searched_apart(order: str, composition: str) -> None:
    model = build_model(Tokens(5, num_unfinished=2), 3, seed=4, order=order, composition=composition)
    model.search = SearchConfig(action_beam=6, word_beam=3)
    sentences = [text.split() for text in SENTENCES]
    together = said(model, sentences)
    assert_same(together, [said(model, [one])[0] for one in sentences])


def test_a_common_beginning_costs_no_search(monkeypatch: pytest.MonkeyPatch) -> None:
    model = build_model(Tokens(5), 2, seed=1)
    model.search = SearchConfig(action_beam=10, word_beam=3)
    pushed: list[int] = []
    shift = StackMachine.shift

    def counting(machine: StackMachine, analyses: AnalysisTable, tokens: Ints) -> Any:
        pushed.append(len(set(analyses.sentence.tolist())))
        return shift(machine, analyses, tokens)

    monkeypatch.setattr(StackMachine, "shift", counting)
    model.score([["1", "2", "3", "4"], ["1", "2", "3", "0"], ["1", "2", "3", "4"]])
    assert pushed == [1, 1, 1, 2]


@pytest.mark.parametrize("changes", [{"method": "particles", "num_particles": 50}, {"method": "released"}])
def test_other_searches_say_the_same_as_if_each_sentence_were_searched_apart(changes: dict[str, Any]) -> None:
    model = build_model(Tokens(5), 2, seed=1)
    model.search = SearchConfig(action_beam=10, word_beam=3, **changes)
    sentences = [["1", "2", "3"], ["1", "2"], ["3"], ["1", "2", "3"]]
    assert_same(said(model, sentences), [said(model, [one])[0] for one in sentences])
