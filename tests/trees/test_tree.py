import copy
import pickle
import xml.etree.ElementTree as ElementTree

import pytest
from hypothesis import given

from treelm.errors import InputError
from treelm.trees.tree import MAX_SVG_HEIGHT, Span, Tree

from .strategies import trees

DOGS_BARK = Tree("S", [Tree("NP", ["dogs"]), Tree("VP", ["bark", Tree("ADVP", ["loudly"])])])


def right_branching(num_words: int) -> Tree:
    tree = Tree("X", ["w"])
    for _ in range(num_words - 1):
        tree = Tree("X", ["w", tree])
    return tree


def plain_spans(tree: Tree, start: int = 0) -> list[Span]:
    """The recursive definition."""
    spans: list[Span] = []
    end = start
    for child in tree.children:
        if isinstance(child, str):
            end += 1
        else:
            spans += plain_spans(child, end)
            end += len(child.words())
    return [Span(tree.label, start, end), *spans]


def test_trees_are_immutable() -> None:
    with pytest.raises(AttributeError, match="immutable"):
        DOGS_BARK.label = "NP"


@given(trees())
def test_spans_follow_the_recursive_definition(tree: Tree) -> None:
    assert tree.spans() == plain_spans(tree)


@pytest.mark.parametrize(
    "other",
    [
        Tree("S", [Tree("NP", ["dogs"]), Tree("VP", ["bark", "loudly"])]),
        Tree("S", [Tree("NP", ["dogs"]), Tree("VP", ["bark"]), Tree("ADVP", ["loudly"])]),
        Tree("S", [Tree("NP", ["cats"]), Tree("VP", ["bark", Tree("ADVP", ["loudly"])])]),
        "(S (NP dogs) (VP bark (ADVP loudly)))",
    ],
)
def test_a_difference_anywhere_makes_trees_unequal(other: object) -> None:
    assert other != DOGS_BARK


def test_text_is_one_line_of_brackets() -> None:
    assert DOGS_BARK.words() == ["dogs", "bark", "loudly"]
    assert str(DOGS_BARK) == "(S (NP dogs) (VP bark (ADVP loudly)))"
    assert eval(repr(DOGS_BARK)) == DOGS_BARK


@given(trees())
def test_text_parses_back(tree: Tree) -> None:
    assert Tree.parse(str(tree)) == tree


@given(trees())
def test_nltk_round_trip(tree: Tree) -> None:
    nltk = pytest.importorskip("nltk")
    assert Tree.from_nltk(tree.to_nltk()) == tree
    assert nltk.Tree.fromstring(str(DOGS_BARK)) == DOGS_BARK.to_nltk()


def test_svg_shows_every_label_and_word() -> None:
    drawing = ElementTree.fromstring(DOGS_BARK.to_svg())
    texts = {text.strip() for element in drawing.iter() for text in [element.text or ""]}
    assert {"S", "NP", "VP", "ADVP", "dogs", "bark", "loudly"} <= texts
    assert DOGS_BARK._repr_svg_() == DOGS_BARK.to_svg()


def test_svg_of_words_with_characters_that_xml_forbids_is_xml() -> None:
    drawing = ElementTree.fromstring(Tree("N\x01P", ["a\x1bb", "c\ufffe", "d&\x7f"]).to_svg())
    shown = [element.text for element in drawing.iter() if element.text]
    assert {"N\ufffdP", "a\ufffdb", "c\ufffd", "d&\ufffd"} <= set(shown)


def test_too_tall_a_tree_has_no_drawing() -> None:
    tall = right_branching(MAX_SVG_HEIGHT + 1)
    with pytest.raises(InputError, match="too tall"):
        tall.to_svg()
    assert tall._repr_svg_() is None
    assert right_branching(MAX_SVG_HEIGHT).to_svg()


def test_a_tree_of_5000_words_needs_no_recursion() -> None:
    tree = right_branching(5000)
    assert tree.height == 5000
    assert len(tree.spans()) == len(tree.words()) == 5000
    assert Tree.parse(str(tree)) == tree
    assert hash(pickle.loads(pickle.dumps(tree))) == hash(tree)
    assert copy.deepcopy(tree) == tree
    assert Tree.from_nltk(tree.to_nltk()) == tree
