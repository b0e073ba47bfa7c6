from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treelm.corpora.readers import read_sentences
from treelm.errors import InputError, without_errors
from treelm.trees.brackets import BracketedTree, format_tree, read_trees, strip_function, unescape
from treelm.trees.tree import Tree

from .shared_data import FOLDER
from .strategies import trees

S = "(S (NP (NNS dogs)) (VP (VBP bark)))"
DOGS_BARK = Tree("S", [Tree("NP", ["dogs"]), Tree("VP", ["bark"])])


def read(text: str, **options: Any) -> list[BracketedTree]:
    return list(without_errors(read_trees(text, source="file.ptb", **options), None))


def read_one(text: str, **options: Any) -> str:
    (item,) = read(text, **options)
    return str(item.tree)


@pytest.mark.parametrize(
    "text",
    [
        "(S (NP (NNS dogs))\n   (VP (VBP bark)))\n",
        "(S\n  (NP\n    (NNS\n      dogs))\n  (VP (VBP bark\n)))",
        "(\nS(NP(NNS dogs))(VP(VBP bark)))",
        "(S\n(NP (NNS dogs))\n(VP (VBP bark))\n)\n",
        "  ( (S (NP (NNS  dogs) )\n (VP\t(VBP bark) ) ) )  ",
        "(S (NP (NNS dogs))\r\n  (VP (VBP bark)))\r\n",
        "(ROOT\n  (S (NP (NNS dogs)) (VP (VBP bark))))",
        "(TOP (S (NP (NNS dogs)) (VP (VBP bark))))",
    ],
)
def test_every_layout_reads_as_the_same_tree(text: str) -> None:
    assert [item.tree for item in read(text)] == [DOGS_BARK]
    assert [item.tree for item in read(text * 3)] == [DOGS_BARK] * 3


def test_lines_count_from_one_and_name_where_a_tree_starts() -> None:
    assert [item.line for item in read(f"\n{S}\n\n(S\n  (X a))\n{S}{S}\n")] == [2, 4, 6, 6]


def test_function_tags_are_cut() -> None:
    text = "(S-TPC=1 (NP-SBJ-2 (NN a)) (PP=3 (-LRB- b)) (=X (NN c)) (-LRB- (NN d)))"
    assert read_one(text) == "(S (NP a) (PP b) (=X c) (-LRB- d))"
    assert read_one(text, separators="") == "(S-TPC=1 (NP-SBJ-2 a) (PP=3 b) (=X c) (-LRB- d))"
    assert [strip_function(label) for label in ("NP-SBJ", "-NONE-", "", "=X")] == ["NP", "-NONE-", "", "=X"]


def test_traces_and_what_they_leave_empty_are_dropped() -> None:
    text = "(S (NP-SBJ (-NONE- *T*-1)) (SBAR (-NONE- 0) (S (-NONE- *))) (VP (VB go) (NP (-NONE- *))))"
    assert read(text) == [BracketedTree(Tree("S", [Tree("VP", ["go"])]), ("VB",), 1)]


def test_the_outer_bracket_is_unwrapped_unless_it_would_leave_a_bare_word() -> None:
    assert read_one("( (S (X a)) )") == read_one("(ROOT (S (X a)))") == "(S a)"
    assert read_one("( (X a))") == read_one("(ROOT (X a))") == read_one("(X a)") == "(ROOT a)"
    assert read_one("(TOP (X a))") == "(TOP a)"
    assert read_one("( (S (X a)) (S (X b)))") == "(ROOT (S a) (S b))"
    assert read_one("(ROOT (S (X a)))", unwrap=False) == "(ROOT (S a))"


def test_escapes_are_brackets_also_inside_words() -> None:
    text = "(S (-LRB- -LRB-) (X a-RRB-b) (X -LSB--RCB-) (X :-RRB-) (X -lrb-))"
    assert read(text)[0].tree.words() == ["(", "a)b", "[}", ":)", "-lrb-"]
    assert read(text)[0].tags == ("-LRB-", "X", "X", "X", "X")
    assert unescape("a-RRB-b") == "a)b"


@given(trees(), st.data())
def test_a_tree_is_read_as_it_was_written_however_it_is_laid_out(tree: Tree, data: st.DataObject) -> None:
    tags = [f"T{i}" for i in range(len(tree.words()))]
    assert read(format_tree(tree, tags)) == [BracketedTree(tree, tuple(tags), 1)]
    layouts = st.sampled_from([" ", "\n ", "\r\n\t", "  "])
    text = "".join(data.draw(layouts) if character == " " else character for character in format_tree(tree))
    assert [item.tree for item in read(text)] == [tree]
    assert Tree.parse(format_tree(tree, with_tags=False)) == tree


@pytest.mark.parametrize(
    "tree", [Tree("S", [""]), Tree("S", ["a b"]), Tree("S", ["a\n"]), Tree("N P", ["a"]), Tree("N(", ["a"])]
)
def test_what_cannot_be_read_back_is_not_written(tree: Tree) -> None:
    with pytest.raises(InputError):
        format_tree(tree)


def test_a_tree_of_5000_words_needs_no_recursion() -> None:
    text = "(X (T w) " * 4999 + "(X (T w)" + ")" * 5000
    (item,) = read(text)
    assert item.tree.height == 5000
    assert format_tree(item.tree, item.tags).replace(" ", "") == text.replace(" ", "")


BAD = [
    ("(S (NP (NNS dogs)) (VP (VBP bark))\n", "file.ptb:2: this tree lacks 1 closing bracket;"),
    ("(S (NP (NNS dogs)) (VP (VBP bark))))\n", "file.ptb:2: a closing bracket that closes nothing"),
    ("(S (NP (NNS dogs))\n  (VP (VBP bark))))\n  (. .))\n", "file.ptb:3: a closing bracket that closes nothing"),
    ("(S )\n", "file.ptb:2: bracket (S) holds no word"),
    ("()\n", "file.ptb:2: bracket () holds no word"),
    ("(S (NP (-NONE- *)))\n", "file.ptb:2: a tree without words"),
    ("dogs bark\n", "file.ptb:2: 'dogs' outside a tree"),
    (f"{S} dogs\n", "file.ptb:2: 'dogs' outside a tree"),
    ("(S (NP (NNS dogs)) bark)\n", "file.ptb:2: word 'bark' has siblings"),
    ("(S (NP\n  the\n  (NNS\n dogs)))\n", "file.ptb:3: word 'the' has siblings"),
    ("(S (NP) (VP (VBP bark)))\n", "file.ptb:2: bracket (NP) holds no word"),
    ("(S (NP (NNS dogs))\n   (VP (VBP bark)\n", "file.ptb:2: this tree lacks 2 closing brackets;"),
    ("(S (NP the dogs) (VP bark))", "file.ptb:2: word 'the' has siblings .* tags = \"absent\""),
]


@pytest.mark.parametrize(("bad", "message"), BAD)
def test_a_bad_tree_is_named_by_file_and_line_with_a_remedy_and_those_before_it_stay(bad: str, message: str) -> None:
    first, error = read_trees(f"{S}\n{bad}", source="file.ptb")
    assert first == BracketedTree(DOGS_BARK, ("NNS", "VBP"), 1)
    assert isinstance(error, InputError)
    place, _, what = message.partition(" .* ")
    assert str(error).startswith(place)
    assert what in error.remedy
    assert "\n" not in str(error)


@pytest.mark.parametrize("bad", ["(S )", "(S (NP (-NONE- *)))", "(S (NP (NNS dogs)) bark)", "(S (NP) (VP (VBP bark)))"])
def test_a_bad_tree_that_is_closed_does_not_lose_those_after_it(bad: str) -> None:
    found = read_trees(f"{bad} {S}\n{S}")
    assert [isinstance(one, InputError) for one in found] == [True, False, False]


@pytest.mark.skipif(not FOLDER.exists(), reason="needs ../shared/data")
@pytest.mark.parametrize("split", ["train", "dev", "test"])
def test_raw_penn_trees_become_their_published_clean_form(split: str) -> None:
    raw, clean = (read_sentences(FOLDER / f"wsj-sample/{split}.{form}.ptb.gz") for form in ("raw", "clean"))
    for normal, published in zip(raw, clean, strict=True):
        assert (normal.tree, normal.tags) == (published.tree, published.tags)
