from collections import Counter

import numpy as np
import pytest
from hypothesis import given

from treelm.trees.transforms import collapse_unaries
from treelm.trees.tree import Tree
from treelm.trees.trivial import (
    balanced,
    binary_upper_bound,
    left_branching,
    random_splits,
    random_uniform,
    right_branching,
)

from .strategies import trees

WORDS = ["a", "b", "c", "d"]
NUM_DRAWS = 5000


def drawn(function: object, words: list[str]) -> Counter[Tree]:
    generator = np.random.default_rng(1)
    return Counter(function(words, generator) for _ in range(NUM_DRAWS))


def test_shapes() -> None:
    assert str(left_branching(WORDS)) == "(X (X (X a b) c) d)"
    assert str(right_branching(WORDS)) == "(X a (X b (X c d)))"
    assert str(balanced(WORDS)) == "(X (X a b) (X c d))"
    assert str(balanced(WORDS[:3])) == "(X (X a b) c)"


@pytest.mark.parametrize("build", [left_branching, right_branching, balanced, random_splits, random_uniform])
def test_one_word_is_a_constituent_and_none_is_an_error(build: type[Tree]) -> None:
    more = [np.random.default_rng(0)] if build in (random_splits, random_uniform) else []
    assert build(["a"], *more) == Tree("X", ["a"])
    with pytest.raises(ValueError, match="words"):
        build([], *more)


def test_random_splits_are_uniform_over_splits() -> None:
    counts = drawn(random_splits, WORDS)
    assert len(counts) == 5
    # The middle split leaves one tree, each outer split two.
    assert counts[balanced(WORDS)] / NUM_DRAWS == pytest.approx(1 / 3, abs=0.03)
    assert counts[left_branching(WORDS)] / NUM_DRAWS == pytest.approx(1 / 6, abs=0.03)


def test_random_uniform_is_uniform_over_trees() -> None:
    counts = drawn(random_uniform, [*WORDS, "e"])
    assert len(counts) == 14
    assert all(count / NUM_DRAWS == pytest.approx(1 / 14, abs=0.02) for count in counts.values())


@pytest.mark.parametrize("branching", ["left", "right"])
@given(tree=trees())
def test_the_upper_bound_is_binary_and_finds_every_gold_span(branching: str, tree: Tree) -> None:
    bound = binary_upper_bound(tree, branching)
    assert bound.words() == tree.words()
    assert all(len(node.children) == 2 or isinstance(node.children[0], str) for node in bound.constituents())
    assert {span[1:] for span in bound.spans()} >= {span[1:] for span in tree.spans()}
    assert set(bound.spans()) >= set(collapse_unaries(tree).spans())


def test_5000_words_need_no_recursion() -> None:
    words = ["w"] * 5000
    for tree in (left_branching(words), right_branching(words), random_uniform(words, np.random.default_rng(0))):
        assert tree.words() == words
