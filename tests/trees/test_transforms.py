import pytest
from hypothesis import given
from hypothesis import strategies as st

from treelm.trees.transforms import (
    binarise_left,
    binarise_right,
    collapse_unaries,
    replace_words,
)
from treelm.trees.tree import Tree

from .strategies import trees

parse = Tree.parse


def test_unary_chains_become_one_constituent() -> None:
    assert collapse_unaries(parse("(S (VP (NP a b) (S (NP (VP c)))))")) == parse("(S (NP a b) (S c))")


@given(trees())
def test_collapsing_leaves_no_unary_over_a_constituent(tree: Tree) -> None:
    collapsed = collapse_unaries(tree)
    assert collapsed.words() == tree.words()
    assert all(len(node.children) > 1 or isinstance(node.children[0], str) for node in collapsed.constituents())
    kept = {(span.start, span.end) for span in collapsed.spans()}
    assert kept == {(span.start, span.end) for span in tree.spans()}


def test_binarising_left_and_right() -> None:
    flat = parse("(S a (NP b c d e) f)")
    assert binarise_left(flat) == parse("(S (S|<> a (NP (NP|<> (NP|<> b c) d) e)) f)")
    assert binarise_right(flat) == parse("(S a (S|<> (NP b (NP|<> c (NP|<> d e))) f))")


@pytest.mark.parametrize("binarise", [binarise_left, binarise_right])
@given(tree=trees())
def test_binarising_adds_marked_constituents_alone(binarise: type[Tree], tree: Tree) -> None:
    binary = binarise(tree)
    assert all(len(node.children) <= 2 for node in binary.constituents())
    assert binary.words() == tree.words()
    assert [span for span in binary.spans() if not span.label.endswith("|<>")] == tree.spans()


@pytest.mark.parametrize("binarise", [binarise_left, binarise_right])
def test_5000_children_need_no_recursion(binarise: type[Tree]) -> None:
    flat = Tree("S", ["w"] * 5000)
    binary = binarise(flat)
    assert binary.height == 4999
    assert binary.words() == flat.words()


@given(trees(), st.data())
def test_words_become_none_one_or_several_and_what_is_left_empty_goes(tree: Tree, data: st.DataObject) -> None:
    words = tree.words()
    counts = data.draw(st.lists(st.integers(0, 3), min_size=len(words), max_size=len(words)))
    pieces = [[f"{number}.{piece}" for piece in range(count)] for number, count in enumerate(counts)]

    def rebuilt(node: Tree) -> list[Tree | str]:
        children: list[Tree | str] = []
        for child in node.children:
            children += rebuilt(child) if isinstance(child, Tree) else pieces[int(child)]
        return [Tree(node.label, children)] if children else []

    numbered = replace_words(tree, [[str(number)] for number in range(len(words))])
    assert numbered is not None
    assert [replace_words(tree, pieces)] == (rebuilt(numbered) or [None])
    with pytest.raises(ValueError, match="items"):
        replace_words(tree, [*pieces, []])
