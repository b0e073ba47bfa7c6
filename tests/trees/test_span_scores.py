"""The greedy parser of span scores."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.trees.strategies import binary_trees
from treelm.trees.distances import tree_from_span_scores
from treelm.trees.tree import Tree


@given(binary_trees())
def test_any_binary_tree_is_recovered_from_ones_on_its_constituents_and_words(tree: Tree) -> None:
    words = tree.words()
    scores = np.eye(len(words))
    for _, start, end in tree.spans():
        scores[start, end - 1] = 1
    assert tree_from_span_scores(words, scores) == tree


@given(st.integers(1, 6), st.integers(0, 10_000))
def test_it_splits_where_the_right_part_scores_highest(num_words: int, seed: int) -> None:
    scores = np.random.default_rng(seed).integers(0, 4, (num_words, num_words)).astype(float)
    words = list("abcdef")[:num_words]

    def plain(i: int, j: int) -> Tree | str:
        if i == j:
            return words[i]
        best = max(range(i, j), key=lambda k: (scores[k + 1, j], -k))
        return Tree("X", [plain(i, best), plain(best + 1, j)])

    expected = plain(0, num_words - 1)
    assert tree_from_span_scores(words, scores) == (expected if num_words > 1 else Tree("X", words))


def test_equal_scores_branch_to_the_right_and_what_cannot_be_is_an_error() -> None:
    assert tree_from_span_scores(list("abc"), np.zeros((3, 3))) == Tree.parse("(X a (X b c))")
    for words, scores in (([], np.zeros((0, 0))), (["a"], np.zeros((2, 2))), (list("ab"), np.full((2, 2), np.nan))):
        with pytest.raises(ValueError, match="score"):
            tree_from_span_scores(words, scores)


def test_a_sentence_of_a_thousand_words_needs_no_recursion() -> None:
    tree = tree_from_span_scores(["a"] * 1500, np.arange(1500.0)[:, None] * np.ones(1500))
    assert tree.height == 1499
