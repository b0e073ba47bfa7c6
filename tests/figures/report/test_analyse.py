"""What is kept of sentences is what the systems say of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.models.palm.worlds import palm
from tests.models.prpn.worlds import prpn
from tests.models.rnng.search.test_interface import VARIANTS, subword_model
from tests.models.som.worlds import som
from treelm.corpora.sentence import Sentence
from treelm.evaluation.comparison.metrics import Comparison, RunMetrics
from treelm.figures.report import analyse
from treelm.figures.report.analyse import MOST_ANALYSES, analyses_of, with_sentences
from treelm.models.base import LanguageModel
from treelm.models.structures import Distances, SpanWeights
from treelm.trees.tree import Tree

WORDS = ("1", "2", "3")
GOLD = Tree.parse("(S 1 (NP 2 3))")


def sentence(words: tuple[str, ...] = WORDS, tree: Tree | None = GOLD) -> Sentence:
    return Sentence(words=words, tree=tree, identifier="1", source="here", line=1)


@contextmanager
def silent(what: str, total: int | None) -> Iterator[Callable[[], None]]:
    yield lambda: None


@pytest.mark.parametrize("make", [prpn, palm, som])
def test_trees_and_bits_are_those_of_the_system(make: Callable[[], LanguageModel]) -> None:
    network = make().eval()
    (found,) = analyses_of(network, [sentence()])
    (surprisal,) = network.surprisal([list(WORDS)])
    assert found.words == WORDS
    assert found.gold == str(GOLD)
    assert found.tree == str(network.parse([list(WORDS)])[0])
    assert found.bits is not None
    assert found.bits.surprisal_bits == pytest.approx([word.surprisal_bits for word in surprisal.words], abs=1e-4)
    assert found.bits.total_bits == pytest.approx(surprisal.total_bits, abs=1e-3)
    assert not found.bits.is_upper_bound


def test_distances_weights_and_slots_are_the_system_s() -> None:
    first, second, third = prpn().eval(), palm().eval(), som().eval()
    (distances,) = analyses_of(first, [sentence()])[0].structures
    assert isinstance(distances, Distances)
    assert distances.values == pytest.approx(first.distances([list(WORDS)])[0], abs=1e-4)
    (attention,) = analyses_of(second, [sentence()])[0].structures
    assert isinstance(attention, SpanWeights)
    assert [len(row) for row in attention.weights] == [0, 1, 2, 3, 4]
    assert attention.reach == tuple(min(row, second.config.max_span) for row in range(5))
    assert attention == second.structure(WORDS)
    assert analyses_of(third, [sentence()])[0].structures == (third.structure(WORDS),)


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_the_beam_after_each_word_is_that_of_a_search(variant: dict[str, Any]) -> None:
    lm, words = subword_model(**variant), ("5", "0+7", "8")
    (found,) = analyses_of(lm, [sentence(words, None)])
    state = lm.start()
    for place, word in enumerate(words):
        state = lm.extend(state, [word])
        kept = [one for one in lm.partial_analyses(state, MOST_ANALYSES)[0] if one.tree.label]
        assert [Tree.parse(one.tree) for one in found.beam[place]] == [one.tree for one in kept]
        assert [one.share for one in found.beam[place]] == pytest.approx([one.share for one in kept], abs=1e-4)
    assert analyses_of(prpn().eval(), [sentence()])[0].beam == ()


def row(name: str) -> RunMetrics:
    return RunMetrics(name=name, run=f"runs/{name}", system="prpn")


def test_all_rows_are_analysed_and_kept_analyses_are_not_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[Path] = []

    def load(path: Path) -> LanguageModel:
        loaded.append(path)
        return prpn().eval()

    monkeypatch.setattr(analyse, "load", load)
    once = with_sentences(Comparison(runs=(row("a"), row("b"))), [sentence()], silent)
    assert [one.sentences[0].words for one in once.runs] == [WORDS, WORDS]
    assert with_sentences(once, [sentence()], silent) == once
    assert loaded == [Path("runs/a"), Path("runs/b")]
    other = with_sentences(once, [sentence(("2", "1"), None)], silent)
    assert [one.words for one in other.runs[0].sentences] == [("2", "1")]


def test_a_system_that_needs_trees_has_bits_of_the_sentences_with_a_tree() -> None:
    network = palm(attention="given").eval()
    with_tree, without = analyses_of(network, [sentence(), sentence(tree=None)])
    assert with_tree.bits is not None
    assert with_tree.bits.total_bits * np.log(2) == pytest.approx(
        -network.score_given([sentence()])[0].log_probs.sum(), 1e-3
    )
    assert without.bits is None
    assert with_tree.structures == without.structures == ()
