"""What public codes of Transformers are told of trees, and what turns count; without clones of the codes."""

from typing import Any

import numpy as np
import pytest
from public_pushdown import binary_tree
from public_transformer_grammar import numbers_of

from treelm.models.layers.gold_trees import binary_splits
from treelm.trees.transitions import to_actions
from treelm.trees.tree import Tree

LABELS = {"S": 0, "NP": 1, "VP": 2, "ROOT": 3}


def actions_of(text: str) -> Any:
    return np.array(to_actions(Tree.parse(text), LABELS))


def splits_of(tree: Any, begin: int = 0) -> list[tuple[int, int, int]]:
    if len(tree) == 1:
        assert tree[0] == str(begin)  # a word
        return []
    left, right = tree
    middle = begin + len(left.leaves())
    whole = (begin, begin + len(tree.leaves()) - 1, middle - 1)
    return [*splits_of(left, begin), *splits_of(right, middle), whole]


@pytest.mark.parametrize(
    "text",
    [
        "(ROOT (S (NP (NP the)) (VP sees (NP a cat) now) .))",
        "(S a b c d e)",
        "(S (S (S a b) c) (VP (VP d)))",
        "(ROOT (S a))",
    ],
)
def test_pushdown_has_the_binary_constituents_that_ours_has(text: str) -> None:
    actions = actions_of(text)
    num_words = len(Tree.parse(text).words())
    tree = binary_tree(actions, num_words)
    assert tree.leaves() == [str(place) for place in range(num_words)]
    assert sorted(splits_of(tree)) == sorted(binary_splits(actions, np.ones(num_words, dtype=bool)))


def test_transformer_grammar_reads_start_words_and_both_brackets() -> None:
    numbers = numbers_of(actions_of("(S (NP the cat) (VP sees))"), np.array([7, 2, 9]), 10, len(LABELS))
    opening, closing = 4 + 10, 4 + 10 + 4
    assert numbers.tolist() == [
        1,
        *(opening + 0, opening + 1, 4 + 7, 4 + 2, closing + 1),
        *(opening + 2, 4 + 9, closing + 2, closing + 0),
    ]
