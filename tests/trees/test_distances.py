import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from treelm.trees.distances import distances_from_tree, tree_from_distances, tree_from_span_scores
from treelm.trees.tree import Tree

from .strategies import binary_trees, trees

values = st.lists(st.integers(0, 5), min_size=2, max_size=12)


def plain_unbiased(words: list[str], distances: list[float]) -> Tree | str:
    """The definition: split before the word with the largest distance, the first word aside."""
    if len(words) == 1:
        return words[0]
    i = int(np.argmax(distances[1:])) + 1
    return Tree("X", [plain_unbiased(words[:i], distances[:i]), plain_unbiased(words[i:], distances[i:])])


def plain_biased(words: list[str], distances: list[float]) -> Tree | str:
    """The definition: (words before i) (word i (words after i))."""
    if len(words) == 1:
        return words[0]
    i = int(np.argmax(distances))
    right: Tree | str = words[i]
    if words[i + 1 :]:
        right = Tree("X", [right, plain_biased(words[i + 1 :], distances[i + 1 :])])
    if not words[:i]:
        return right
    return Tree("X", [plain_biased(words[:i], distances[:i]), right])


def names(distances: list[float]) -> list[str]:
    return [f"w{i}" for i in range(len(distances))]


@given(binary_trees())
def test_every_binary_tree_is_rebuilt_from_its_distances(tree: Tree) -> None:
    assert tree_from_distances(tree.words(), distances_from_tree(tree)) == tree


@given(trees())
def test_a_distance_is_the_height_of_the_smallest_common_constituent(tree: Tree) -> None:
    nodes, spans = tree.constituents(), tree.spans()
    distances = distances_from_tree(tree).tolist()
    assert distances[0] == 0
    for i in range(1, len(distances)):
        common = [j for j, span in enumerate(spans) if span.start < i < span.end]
        assert distances[i] == min(nodes[j].height for j in common)


@given(values)
def test_unbiased_builder_follows_its_definition(distances: list[float]) -> None:
    assert tree_from_distances(names(distances), distances) == plain_unbiased(names(distances), distances)


@given(values)
def test_biased_builder_follows_its_definition(distances: list[float]) -> None:
    built = tree_from_distances(names(distances), distances, builder="biased")
    assert built == plain_biased(names(distances), distances)


@pytest.mark.parametrize("builder", ["unbiased", "biased"])
@pytest.mark.parametrize("order", ["rising", "falling", "equal"])
def test_5000_words_need_no_recursion(builder: str, order: str) -> None:
    distances = {"rising": np.arange(5000), "falling": -np.arange(5000), "equal": np.zeros(5000)}[order]
    words = [f"w{i}" for i in range(5000)]
    tree = tree_from_distances(words, distances, builder=builder)
    assert tree.words() == words
    assert len(distances_from_tree(tree)) == 5000


# Trees from scores of spans.


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


def test_a_sentence_of_a_thousand_words_needs_no_recursion() -> None:
    tree = tree_from_span_scores(["a"] * 1500, np.arange(1500.0)[:, None] * np.ones(1500))
    assert tree.height == 1499
