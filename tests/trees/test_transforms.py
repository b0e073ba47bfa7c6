import pytest
from hypothesis import given
from hypothesis import strategies as st

from treelm.errors import InputError
from treelm.trees.brackets import BracketedTree, Normalisation, iter_trees
from treelm.trees.transforms import (
    binarise_left,
    binarise_right,
    collapse_unaries,
    debinarise,
    drop_empties,
    drop_tags,
    replace_words,
    strip_functions,
    unwrap_outer_bracket,
)
from treelm.trees.tree import Tree

from .strategies import trees

parse = Tree.parse


def test_function_tags_are_cut_from_all_labels() -> None:
    assert strip_functions(parse("(S-TPC-1 (NP=2 (-NONE- a)) (=X b))")) == parse("(S (NP (-NONE- a)) (=X b))")


def test_empty_words_and_what_they_leave_empty_are_dropped() -> None:
    assert drop_empties(parse("(S (NP (-NONE- *)) (SBAR (S (-NONE- 0))) (VP (VB go)))")) == parse("(S (VP (VB go)))")
    with pytest.raises(InputError, match="without words"):
        drop_empties(parse("(S (-NONE- *))"))


def test_tags_are_dropped_and_constituents_of_one_word_stay() -> None:
    assert drop_tags(parse("(S (NP (NN dogs)) (VP (VBP bark) (. .)))")) == parse("(S (NP dogs) (VP bark .))")
    assert drop_tags(parse("(NN dogs)")) == parse("(NN dogs)")


def test_the_outer_bracket_goes_unless_a_word_is_in_it() -> None:
    assert unwrap_outer_bracket(parse("(ROOT (S a))")) == parse("(S a)")
    assert unwrap_outer_bracket(parse("(ROOT a)")) == parse("(ROOT a)")
    assert unwrap_outer_bracket(parse("(TOP (S a) (S b))")) == parse("(TOP (S a) (S b))")
    assert unwrap_outer_bracket(parse("(S (NP a))")) == parse("(S (NP a))")


def test_steps_one_by_one_equal_the_readers_normal_form() -> None:
    text = "( (S-TPC (NP-SBJ (-NONE- *)) (NP (NP-1 (NN dogs))) (VP (VBP bark) (NP (-NONE- *T*)))) )"
    plain = Normalisation(strip_functions=False, drop_empties=False, unwrap=False, drop_tags=False)
    (raw,) = iter_trees([text], normalisation=plain)
    (normal,) = iter_trees([text])
    assert unwrap_outer_bracket(drop_tags(drop_empties(strip_functions(raw.tree)))) == normal.tree


@pytest.mark.parametrize(
    ("labels", "expected"),
    [("top", "(S (NP a b) (S c))"), ("bottom", "(VP (NP a b) (VP c))"), ("join", "(S+VP (NP a b) (S+NP+VP c))")],
)
def test_unary_chains_become_one_constituent(labels: str, expected: str) -> None:
    assert collapse_unaries(parse("(S (VP (NP a b) (S (NP (VP c)))))"), labels) == parse(expected)


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
def test_debinarising_undoes_binarising(binarise: type[Tree], tree: Tree) -> None:
    binary = binarise(tree)
    assert all(len(node.children) <= 2 for node in binary.constituents())
    assert debinarise(binary) == tree


@pytest.mark.parametrize("binarise", [binarise_left, binarise_right])
def test_the_treebank_survives_binarising(binarise: type[Tree], gum_open: list[BracketedTree]) -> None:
    for item in gum_open[:1000]:
        assert debinarise(binarise(item.tree)) == item.tree


def test_labels_that_look_binarised_are_refused() -> None:
    with pytest.raises(ValueError, match="already ends with the mark"):
        binarise_left(Tree("S", [Tree("NP|<>", ["a", "b"])]))
    with pytest.raises(ValueError, match="top of the tree"):
        debinarise(Tree("NP|<>", ["a", "b"]))


@pytest.mark.parametrize("binarise", [binarise_left, binarise_right])
def test_5000_children_need_no_recursion(binarise: type[Tree]) -> None:
    flat = Tree("S", ["w"] * 5000)
    binary = binarise(flat)
    assert binary.height == 4999
    assert debinarise(binary) == flat


def test_a_chain_of_5000_unaries_needs_no_recursion() -> None:
    tree = Tree("X", ["w"])
    for _ in range(5000):
        tree = Tree("X", [tree])
    assert collapse_unaries(tree) == Tree("X", ["w"])
    assert drop_empties(strip_functions(tree)) == tree


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
