"""benepar behind the method of our own parsers, with a fake module in its place."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from treelm.errors import InputError
from treelm.inference.batching import compute_each
from treelm.inference.benepar import Benepar
from treelm.trees.brackets import format_tree


class NltkTree(list[Any]):
    """As much of nltk's class as benepar's users see."""

    def __init__(self, label: str, children: Sequence[Any]) -> None:
        super().__init__(children)
        self._label = label

    def label(self) -> str:
        return self._label


def escaped(word: str) -> str:
    return {"(": "-LRB-"}.get(word, word)


class FakeBeneparParser:
    def __init__(self, model: str) -> None:
        assert model == "benepar_en3"

    def parse_sents(self, sentences: Sequence[Any]) -> Iterator[NltkTree]:
        for sentence in sentences:
            words = [NltkTree("NN", [escaped(word)]) for word in sentence.words if word != "lost"]
            if "bad" in sentence.words:
                raise AssertionError("sentence too long")
            yield NltkTree(
                "TOP", words if len(words) == 1 else [NltkTree("S", [NltkTree("NP", words[:-1]), words[-1]])]
            )


@pytest.fixture(autouse=True)
def module(monkeypatch: pytest.MonkeyPatch) -> None:
    module: Any = ModuleType("benepar")
    module.Parser = FakeBeneparParser
    module.InputSentence = SimpleNamespace
    monkeypatch.setitem(sys.modules, "benepar", module)


def test_words_are_ours_whatever_the_parser_escapes() -> None:
    found = Benepar().annotate([["(", "x"], ["yes"], ["-LRB-", "[x]"]])
    assert [one.tree.words() for one in found] == [["(", "x"], ["yes"], ["-LRB-", "[x]"]]
    assert [format_tree(one.tree, one.tags) for one in found[:2]] == [
        "(S (NP (NN -LRB-)) (NN x))",
        "(TOP (NN yes))",
    ]  # TOP stays where a bare word would be left


def test_a_parser_that_loses_a_word_is_caught() -> None:
    with pytest.raises(InputError, match="benepar has changed the number of words"):
        Benepar().annotate([["a", "lost", "dog", "barks"]])


def test_what_the_parser_stumbles_over_costs_one_sentence() -> None:
    good, bad = compute_each(Benepar().annotate, [["a", "dog"], ["a", "bad", "dog"]])
    assert not isinstance(good, InputError)
    assert format_tree(good.tree, good.tags) == "(S (NP (NN a)) (NN dog))"
    assert isinstance(bad, InputError)
    assert "benepar cannot parse it (sentence too long)" in str(bad)


def test_a_parser_that_is_not_installed_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "benepar", None)
    with pytest.raises(InputError, match=r"benepar is not installed; pip install 'treelm\[benepar\]'") as caught:
        Benepar()
    assert "\n" not in str(caught.value)
