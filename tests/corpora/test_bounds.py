import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.corpora.helpers import TREES, corpus
from treelm.corpora.arrays import offsets_of
from treelm.corpora.building import measure_bounds
from treelm.trees.transitions import Order, to_actions
from treelm.trees.tree import Tree

LABELS = {"S": 0, "NP": 1, "VP": 2, "PP": 3, "X": 4}


def slow_bounds(tree: Tree, order: Order) -> tuple[int, int]:
    """Play the derivation and look at every NT."""
    num_open = in_a_row = max_open = max_in_a_row = 0
    for action in to_actions(tree, LABELS, order):
        if action == 0:
            in_a_row = 0
        elif action == 1:
            num_open -= 1
            in_a_row = in_a_row if order == "in-order" else 0
        elif action < 2 + len(LABELS):
            num_open, in_a_row = num_open + 1, in_a_row + 1
        max_open, max_in_a_row = max(max_open, num_open), max(max_in_a_row, in_a_row)
    return max_open, max_in_a_row


def nested(children: st.SearchStrategy[Tree | str]) -> st.SearchStrategy[Tree]:
    return st.builds(
        lambda label, kids: Tree(label, kids), st.sampled_from("X"), st.lists(children, min_size=1, max_size=3)
    )


RANDOM_TREES = nested(st.recursive(st.just("w"), nested, max_leaves=12))


@given(st.lists(RANDOM_TREES, min_size=1, max_size=4), st.sampled_from(["top-down", "in-order"]))
def test_bounds_equal_those_of_derivations_played_step_by_step(trees: list[Tree], order: Order) -> None:
    actions = [to_actions(tree, LABELS) for tree in trees]
    flat = np.array([action for sentence in actions for action in sentence], dtype=np.int16)
    offsets = offsets_of(np.array([len(sentence) for sentence in actions]))
    bounds = measure_bounds(flat, offsets, num_labels=len(LABELS), order=order)
    assert list(zip(*(column.tolist() for column in bounds), strict=True)) == [slow_bounds(t, order) for t in trees]


def test_a_prepared_corpus_holds_the_bounds_of_every_sentence() -> None:
    prepared = corpus()
    for order in ("top-down", "in-order"):
        expected = [slow_bounds(Tree.parse(tree), order) for tree in TREES]
        assert list(zip(*(column.tolist() for column in prepared.bounds(order)), strict=True)) == expected


def test_sentences_without_actions_have_bounds_zero() -> None:
    bounds = measure_bounds(np.zeros(0, dtype=np.int16), np.zeros(3, dtype=np.int64), num_labels=0, order="in-order")
    assert bounds.max_open.tolist() == bounds.max_consecutive.tolist() == [0, 0]
