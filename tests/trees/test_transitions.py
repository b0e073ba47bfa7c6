import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from treelm.trees.transitions import from_actions, to_actions, top_down_to_in_order
from treelm.trees.tree import Tree

from .strategies import LABELS, trees

INDEX = {label: i for i, label in enumerate(LABELS)}
S, NP, VP = 2, 3, 4
FINISH = 2 + len(LABELS)
DOGS_BARK = Tree("S", [Tree("NP", ["dogs"]), Tree("VP", ["bark"])])


def flat(sequences: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
    offsets = np.cumsum([0, *map(len, sequences)])
    return np.array([action for sequence in sequences for action in sequence], dtype=np.int16), offsets


def test_top_down_opens_before_the_children() -> None:
    assert to_actions(DOGS_BARK, INDEX) == [S, NP, 0, 1, VP, 0, 1, 1]


def test_in_order_opens_after_the_first_child() -> None:
    assert to_actions(DOGS_BARK, INDEX, "in-order") == [0, NP, 1, S, 0, VP, 1, 1, FINISH]


@pytest.mark.parametrize("order", ["top-down", "in-order"])
@given(tree=trees())
def test_actions_round_trip(order: str, tree: Tree) -> None:
    assert from_actions(to_actions(tree, INDEX, order), tree.words(), LABELS, order) == tree


@given(st.lists(trees(), min_size=1, max_size=5))
def test_vectorised_in_order_equals_tree_by_tree(forest: list[Tree]) -> None:
    actions, offsets = top_down_to_in_order(*flat([to_actions(tree, INDEX) for tree in forest]), len(LABELS))
    expected, expected_offsets = flat([to_actions(tree, INDEX, "in-order") for tree in forest])
    assert actions.tolist() == expected.tolist()
    assert actions.dtype == np.int16
    assert offsets.tolist() == expected_offsets.tolist()


def test_pieces_of_a_first_word_stay_together() -> None:
    actions, offsets = flat([[S, 0, 0, NP, 0, 0, 0, 1, 1]])
    ends_word = np.array([False, True, False, False, True])
    in_order, _ = top_down_to_in_order(actions, offsets, len(LABELS), ends_word=ends_word)
    assert in_order.tolist() == [0, 0, S, 0, 0, 0, NP, 1, 1, FINISH]


def test_deep_tree_needs_no_recursion() -> None:
    tree = Tree("S", ["w"])
    for _ in range(5000):
        tree = Tree("S", ["w", tree])
    for order in ("top-down", "in-order"):
        assert from_actions(to_actions(tree, INDEX, order), tree.words(), LABELS, order) == tree


@pytest.mark.parametrize(
    ("order", "actions", "message"),
    [
        ("top-down", [S, 0, 1, 1], "action 3, 1: impossible with 0 open constituents"),
        ("top-down", [S, NP, 1], "action 2, 1: impossible with 2 open constituents"),
        ("top-down", [S, 0, 1, NP], "action 3, 3: impossible"),
        ("top-down", [S, 0, 0], "1 open constituents and 0 words left"),
        ("top-down", [S, 0, 1], "0 open constituents and 1 words left"),
        ("top-down", [0], "action 0, 0: impossible"),
        ("top-down", [], "0 open constituents and 2 words left"),
        ("in-order", [S], "action 0, 2: impossible"),
        ("in-order", [0, S, NP], "action 2, 3: impossible"),
        ("in-order", [0, S, 0, 1], "0 open constituents and 0 words left"),
        ("in-order", [0, S, 0, 1, FINISH, FINISH], "action 5, 6: impossible"),
    ],
)
def test_malformed_actions_say_where(order: str, actions: list[int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        from_actions(actions, ["a", "b"], LABELS, order)
