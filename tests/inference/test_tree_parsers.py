"""Foreign parsers behind one interface, with fake modules in their places."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from treelm.errors import InputError
from treelm.inference.processes import compute_each
from treelm.inference.tree_parsers import ParserSettings, open_parser


class NltkTree(list[Any]):
    """As much of nltk's class as benepar's users see."""

    def __init__(self, label: str, children: Sequence[Any]) -> None:
        super().__init__(children)
        self._label = label

    def label(self) -> str:
        return self._label


def stanza_tree(label: str, *children: Any) -> SimpleNamespace:
    return SimpleNamespace(label=label, children=children)


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


class FakeStanzaPipeline:
    def __init__(self, **options: Any) -> None:
        assert options["tokenize_pretokenized"] is True
        assert options["download_method"] is None  # no network behind the user's back

    def __call__(self, sentences: Sequence[Sequence[str]]) -> SimpleNamespace:
        if any("bad" in words for words in sentences):
            raise ValueError("sentence too long")
        return SimpleNamespace(sentences=[SimpleNamespace(constituency=self.tree(words)) for words in sentences])

    def tree(self, sentence: Sequence[str]) -> SimpleNamespace:
        words = [stanza_tree("NN", stanza_tree(escaped(word))) for word in sentence if word != "lost"]
        if len(words) == 1:
            return stanza_tree("ROOT", *words)
        return stanza_tree("ROOT", stanza_tree("S", stanza_tree("NP", *words[:-1]), words[-1]))


@pytest.fixture(params=["benepar", "stanza"])
def name(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    module: Any = ModuleType(request.param)
    module.Parser, module.Pipeline = FakeBeneparParser, FakeStanzaPipeline
    module.InputSentence = SimpleNamespace
    monkeypatch.setitem(sys.modules, request.param, module)
    open_parser.cache_clear()
    yield request.param
    open_parser.cache_clear()


def test_words_are_ours_whatever_the_parser_escapes(name: str) -> None:
    lines = open_parser(ParserSettings(name=name))([["(", "x"], ["yes"]])
    outer = {"benepar": "TOP", "stanza": "ROOT"}[name]  # stays where a bare word would be left
    assert [one.line for one in lines] == ["(S (NP (NN -LRB-)) (NN x))", f"({outer} (NN yes))"]


def test_a_parser_that_loses_a_word_is_caught(name: str) -> None:
    with pytest.raises(InputError, match=f"{name} has changed the number of words"):
        open_parser(ParserSettings(name=name))([["a", "lost", "dog", "barks"]])


def test_what_the_parser_stumbles_over_costs_one_sentence(name: str) -> None:
    good, bad = compute_each(open_parser(ParserSettings(name=name)), [["a", "dog"], ["a", "bad", "dog"]])
    assert not isinstance(good, InputError)
    assert good.line == "(S (NP (NN a)) (NN dog))"
    assert isinstance(bad, InputError)
    assert f"{name} cannot parse it (sentence too long)" in str(bad)


def test_a_parser_that_is_not_installed_says_how_to_install_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(InputError, match=rf"{name} is not installed; pip install 'treelm\[{name}\]'") as caught:
        open_parser(ParserSettings(name=name))
    assert "\n" not in str(caught.value)


def fail(error: Exception) -> Callable[..., None]:
    def constructor(*_: Any, **__: Any) -> None:
        raise error

    return constructor
