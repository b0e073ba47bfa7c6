"""Analyses of learned trees, against values that were computed by hand."""

from collections.abc import Sequence

import numpy as np
import pytest

from tests.corpora.helpers import sentence, text_sentence
from tests.legacy.make import HERE
from treelm.errors import InputError
from treelm.evaluation.evalb_files import Bracketing, bracketing_of
from treelm.evaluation.span_protocols import WSJ10, WSJ40
from treelm.evaluation.structure import (
    LearnedTrees,
    TreeAnalysis,
    analyse_structure,
    learned_trees,
    spearman,
    together,
)
from treelm.evaluation.tables import Table
from treelm.evaluation.trivial_baselines import trivial_baselines
from treelm.figures.tables import structure_tables
from treelm.inference.loading import load
from treelm.models.search.config import SearchConfig
from treelm.trees.distances import tree_from_distances
from treelm.trees.tree import Tree

GOLD = "(S (NP-SBJ the dog) (VP saw (NP a cat)))"  # inner spans: NP 0-2, VP 2-5, NP 3-5
RIGHT = "(X the (X dog (X saw (X a cat))))"  # 1-5, 2-5, 3-5: finds VP and one NP
LEFT = "(X (X (X (X the dog) saw) a) cat)"  # 0-4, 0-3, 0-2: finds the other NP


def trees(*texts: str) -> list[Bracketing]:
    return [bracketing_of(Tree.parse(text)) for text in texts]


def analysed(gold: Sequence[str], system: LearnedTrees) -> TreeAnalysis:
    return analyse_structure([sentence(one) for one in gold], [system], WSJ10, num_draws=1).rows[0]


def means(values: object) -> dict[str, float]:
    assert isinstance(values, dict)
    return {name: spread.mean for name, spread in values.items()}


def test_recall_by_label_and_f1_by_length_of_one_tree() -> None:
    row = analysed([GOLD], LearnedTrees(name="right", seeds=[trees(RIGHT)]))
    assert row.corpus_f1.mean == row.sentence_f1.mean == pytest.approx(100 * 2 / 3)
    assert means(row.recall_by_label) == {"NP": 50.0, "VP": 100.0}
    # Two words: one of two found, by one that is right. Three: VP. Four: 1-5, which is none.
    assert means(row.f1_by_span_length) == pytest.approx({"2": 100 * 2 / 3, "3": 100.0, "4": 0.0})
    assert means(row.f1_by_sentence_length) == pytest.approx({"1-10": 100 * 2 / 3})
    assert (row.right_branching.mean, row.left_branching.mean) == (100.0, 0.0)
    assert row.agreement is None
    assert row.corpus_f1.deviation is None


def test_several_seeds_have_means_deviations_and_an_agreement() -> None:
    row = analysed([GOLD], LearnedTrees(name="both", seeds=[trees(RIGHT), trees(LEFT), trees(LEFT)]))
    assert row.num_seeds == 3
    assert row.recall_by_label["VP"].mean == pytest.approx(100 / 3)
    assert row.recall_by_label["VP"].deviation == pytest.approx(np.std([100, 0, 0], ddof=1))
    assert row.agreement is not None
    assert (row.agreement.count, row.agreement.mean) == (3, pytest.approx(100 / 3))  # of three pairs, one is alike
    assert str(row.agreement) == "33.3 ± 57.7"


def test_distances_against_heights_of_the_gold_tree() -> None:
    # Between the words: NP is 1 high, S 3, VP 2, NP 1.
    rising = np.array([9.0, 1.0, 3.0, 2.0, 1.0])
    words = Tree.parse(GOLD).words()
    found = [bracketing_of(tree_from_distances(words, rising))]
    seeds = [[rising], [-rising], [np.zeros(5)]]
    row = analysed(
        [GOLD, "(S a b)"],
        LearnedTrees(
            name="x", seeds=[[*found, *trees("(X a b)")]] * 3, distances=[[*one, np.zeros(2)] for one in seeds]
        ),
    )
    assert row.height_correlation is not None
    assert row.height_correlation.mean == pytest.approx(0.0)  # of 1, -1 and 0; two words have one height: left out
    assert row.height_correlation.deviation == pytest.approx(1.0)
    single = analysed([GOLD], LearnedTrees(name="x", seeds=[found], distances=[[rising]]))
    deviation = np.std([1, 3, 2, 1])
    expected = {"1": (1 - 1.75) / deviation, "2": (2 - 1.75) / deviation, "3": (3 - 1.75) / deviation}
    assert means(single.distance_by_height) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        ([1, 2, 3], [10, 20, 30], 1.0),
        ([1, 2, 3], [1, 3, 2], 0.5),
        ([1, 1, 2], [1, 2, 3], 0.75**0.5),
        ([1, 1], [1, 2], 0),
    ],
)
def test_spearman_gives_equals_the_mean_of_their_ranks(left: list[int], right: list[int], expected: float) -> None:
    assert spearman(np.array(left, dtype=float), np.array(right, dtype=float)) == pytest.approx(expected)


def test_trivial_rows_are_those_of_the_baselines() -> None:
    gold = [sentence(GOLD), sentence("(S (NP a b) (VP c (PP d (NP e f)) g))")]
    result = analyse_structure(gold, [], WSJ40, num_draws=3)
    baselines = trivial_baselines(
        [bracketing_of(one.tree) for one in gold if one.tree is not None], WSJ40, num_seeds=3, random_distances=True
    )
    assert [row.name for row in result.rows] == [row.name for row in baselines]
    for row, baseline in zip(result.rows, baselines, strict=True):
        assert row.corpus_f1.mean == pytest.approx(baseline.corpus_f1)
        assert row.sentence_f1.mean == pytest.approx(baseline.sentence_f1)
    assert means(result.rows[-1].recall_by_label) == {"NP": 100.0, "VP": 100.0, "PP": 100.0}
    assert result.labels == {"NP": 4, "VP": 2, "PP": 1}


def test_both_builders_make_trees_of_a_model_with_distances() -> None:
    lm = load(HERE / "prpn")
    words = [["the", "dog", "saw", "a", "cat"], ["I", "think"]]
    biased, unbiased = learned_trees(lm, words)
    assert (biased.name, unbiased.name) == ("prpn, biased builder", "prpn, unbiased builder")
    (distances,) = biased.distances
    assert [len(one) for one in distances] == [5, 2]
    for builder, found in (("biased", biased), ("unbiased", unbiased)):
        lm.tree_builder = builder  # type: ignore[attr-defined]
        assert list(found.seeds[0]) == [bracketing_of(tree) for tree in lm.parse(words)]
    both = together("prpn", [unbiased, unbiased])
    assert len(both.seeds) == len(both.distances) == 2


def test_trees_of_a_search_say_how_many_words_have_not_converged() -> None:
    lm = load(HERE / "rnng")
    lm.search = SearchConfig(threshold=10, action_beam=20, word_beam=1)  # type: ignore[attr-defined]
    gold = [sentence(GOLD), sentence("(S (NP I) (VP think))")]
    words = [one.words for one in gold]
    (found,) = learned_trees(lm, words)
    assert list(found.seeds[0]) == [bracketing_of(tree) for tree in lm.parse(words)]  # type: ignore[attr-defined]
    (share,) = found.unconverged
    assert share == pytest.approx(100 * np.mean(np.concatenate([~one.converged for one in lm.score(words)])))
    assert share > 0
    result = analyse_structure(gold, [together("rnng", [found, found])], WSJ40, num_draws=0)
    (row,) = result.rows
    assert (row.unconverged and row.unconverged.count) == 2
    (overall,) = (one for one in structure_tables(result) if isinstance(one, Table) and one.title.startswith("wsj40"))
    assert dict(zip(overall.headings, overall.rows[0], strict=True))["not converged %"] == f"{share:.1f} ± 0.0"


def test_what_cannot_be_analysed_is_refused_in_one_line() -> None:
    with pytest.raises(InputError, match="without trees"):
        list(learned_trees(load(HERE / "lstm"), [["a"]]))
    bare = text_sentence("a b", 7)
    with pytest.raises(InputError, match="a sentence without a tree"):
        analyse_structure([bare], [], WSJ10)
    with pytest.raises(InputError, match="predicted words are neither"):
        analysed([GOLD], LearnedTrees(name="x", seeds=[trees("(X a b)")]))
    long = sentence("(S " + " ".join("abcdefghijklm") + ")")
    with pytest.raises(InputError, match="no sentence that protocol wsj10 keeps"):
        analyse_structure([long], [], WSJ10)


def test_many_to_one_labels() -> None:
    found = [
        "(TOP (A the dog) (B saw (A a cat)))",  # A: NP, NP; B: VP
        "(TOP (B the dog) (B saw (A a cat)))",  # B: NP, VP
        "(TOP (C (TOP the dog) saw) (A a cat))",  # TOP: NP; C: none; A: NP
    ]
    row = analysed([GOLD] * 3, LearnedTrees(name="x", seeds=[trees(*found)]))
    assert row.symbols == {"A": {"NP": 4}, "B": {"VP": 2, "NP": 1}, "C": {"": 1}, "TOP": {"NP": 1}}
    assert row.many_to_one is not None
    assert row.many_to_one.mean == pytest.approx(100 * (4 + 2 + 1) / 8)
