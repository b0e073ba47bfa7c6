"""What cannot be asked of a model is one line, in Python too."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import treelm
from tests.legacy.make import HERE as RUNS
from treelm.errors import InputError
from treelm.models.base import LanguageModel


@pytest.fixture(scope="module")
def lm() -> LanguageModel:
    return treelm.load(RUNS / "lstm")


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (lambda lm: lm.parse(["a b"]), "lstm is a language model without trees, so it has no 'parse'; take a run with"),
        (lambda lm: lm.partial_trees(lm.start()), "lstm is a language model without trees"),
        (lambda lm: lm.annotate(["a b"]), "lstm says nothing of tags"),
        (lambda lm: lm.parse_nbest(["a b"], 2), "lstm scores without a search, so it has no 'parse_nbest'"),
        (lambda lm: lm.search, "lstm scores without a search"),
        (lambda lm: lm.used_rules(["a b"]), "lstm has no rules to list"),
        (lambda lm: lm.write_arpa("x"), "lstm has no n-grams"),
        (lambda lm: lm.start("x"), "num_sentences = 'x'; give a whole number"),
        (lambda lm: lm.start(None), "num_sentences = None; give a whole number"),
        (lambda lm: lm.extend(None, ["a"]), "NoneType where a state was expected"),
        (lambda lm: lm.extend(lm.start(), None), "NoneType where a list of words was expected"),
        (lambda lm: lm.surprisal(["a"], measures=None), "measures = None; give a list"),
        (lambda lm: treelm.load(None), "no run given"),
        (lambda lm: treelm.load(RUNS / "lstm", device="tpu"), "device = 'tpu'; choose one of auto, cuda, cpu"),
        (lambda lm: treelm.SearchConfig(typo=1), "unknown field 'typo'; known fields are method, action_beam"),
        (lambda lm: treelm.SearchConfig(word_bem=1), "unknown field 'word_bem'; did you mean word_beam?"),
        (lambda lm: treelm.SearchConfig(seed=2, sead=1), "unknown field 'sead'; known fields are method, action_beam"),
        (lambda lm: treelm.SearchConfig(action_beam="x"), "action_beam = 'x'; give a whole number"),
        (lambda lm: treelm.SearchConfig(method="best"), "method = 'best'; give 'beam', 'particles' or 'released'"),
        (lambda lm: lm.generate(num_sentences=-1), "num_sentences = -1; give 0 or more"),
        (lambda lm: lm.generate(temperature="hot"), "temperature = 'hot'; give a number"),
        (lambda lm: lm.perplexity([]), "no words to compute a perplexity from"),
        (lambda lm: lm.surprisal_table("the dog"), "one text where a list of sentences was expected"),
        (lambda lm: lm.surprisal_table(["a"], colums=[]), "surprisal_table: unknown field 'colums'; did you mean col"),
        (
            lambda lm: lm.surprisal_table(["a"], text="a"),
            "surprisal_table: unknown field 'text'; did you mean text_col",
        ),
        (lambda lm: treelm.train(), "no recipe; give one and output"),
        (lambda lm: treelm.train("demo"), "no run folder; add output"),
        (lambda lm: treelm.train("demo", output="x", epochs=2), "'epochs' is not a section of recipes"),
        (
            lambda lm: treelm.train("demo", output="x", training={"epoch": 2}),
            "demo.toml [training]: unknown field 'epo",
        ),
        (lambda lm: treelm.train("demo", resume="x"), "a recipe beside resume"),
        (lambda lm: treelm.train(resume="x"), "x: no run to resume; give the folder"),
        (lambda lm: treelm.evaluate("run", splt="dev"), "evaluate: unknown field 'splt'; did you mean split?"),
        (lambda lm: treelm.evaluate("run", split="tst"), "evaluate: split.0 = 'tst'; give 'train', 'dev' or 'test'"),
        (lambda lm: treelm.evaluate("run", gold=["(S a)"], predicted=["(S a)"]), "cannot tell what to evaluate"),
        (lambda lm: treelm.evaluate("", gold=[None], predicted=[None]), "list where trees were expected"),
    ],
)
def test_calls_that_cannot_be_answered_are_refused_in_one_line(
    lm: LanguageModel, call: Callable[[Any], object], expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError) as caught:
        call(lm)
    assert str(caught.value).startswith(expected)
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_a_model_does_not_seem_to_have_what_it_lacks(lm: LanguageModel) -> None:
    assert not hasattr(lm, "parse")
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        lm.nothing  # noqa: B018
