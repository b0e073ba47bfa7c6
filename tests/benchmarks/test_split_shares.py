"""Shares of left and right splits."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
from split_shares import random_shares, split_shares

from tests.models.palm.worlds import palm
from treelm.trees.tree import Tree


def test_splits_are_left_right_or_neither() -> None:
    trees = [
        "(X a (X b (X c d)))",  # right, right
        "(X (X a b) c)",  # left
        "(X (X a b) (X c d))",  # neither, and so are splits of two words
        "(X a)",
    ]
    shares = split_shares(map(Tree.parse, trees))
    assert (shares.left, shares.right, shares.num_splits) == (12.5, 25, 8)


def test_trees_that_are_not_binary_are_an_error() -> None:
    with pytest.raises(ValueError, match="3 parts"):
        split_shares([Tree.parse("(X a b c)")])


def test_shares_over_seeds_differ_from_seed_to_seed() -> None:
    shares = random_shares(lambda seed: palm(seed), [list("1234567"), list("55512034")], num_seeds=4)
    assert 0 <= shares.left[0] <= 100
    assert shares.left[1] > 0
    assert random_shares(lambda seed: palm(attention="right"), [list("123")], num_seeds=2).right == (50, 0)
