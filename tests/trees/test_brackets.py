from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treelm.errors import InputError
from treelm.trees.brackets import (
    AS_WRITTEN,
    BracketedTree,
    Normalisation,
    format_tree,
    iter_trees,
    parse_tree,
)
from treelm.trees.tree import Tree

from .shared_data import shared_lines
from .strategies import trees

S = "(S (NP (NNS dogs)) (VP (VBP bark)))"
DOGS_BARK = Tree("S", [Tree("NP", ["dogs"]), Tree("VP", ["bark"])])


def read(text: str, **options: object) -> list[BracketedTree]:
    return list(iter_trees(text.splitlines(keepends=True), source="file.ptb", **options))


def read_one(text: str, **steps: bool) -> str:
    (item,) = read(text, normalisation=Normalisation(**steps))
    return str(item.tree)


def read_on(text: str, **options: object) -> tuple[list[BracketedTree], list[str]]:
    errors: list[InputError] = []
    found = read(text, on_error="skip", errors=errors, **options)
    return found, [str(error) for error in errors]


def test_words_lose_their_tags_and_the_tags_are_kept_beside() -> None:
    assert read(S) == [BracketedTree(DOGS_BARK, ("NNS", "VBP"), 1)]


@pytest.mark.parametrize(
    "text",
    [
        "(S (NP (NNS dogs))\n   (VP (VBP bark)))\n",
        "(S\n  (NP\n    (NNS\n      dogs))\n  (VP (VBP bark\n)))",
        "(\nS(NP(NNS dogs))(VP(VBP bark)))",
        "(S\n(NP (NNS dogs))\n(VP (VBP bark))\n)\n",
        "  ( (S (NP (NNS  dogs) )\n (VP\t(VBP bark) ) ) )  ",
        "\ufeff(S (NP (NNS dogs)) (VP (VBP bark)))",
        "(S (NP (NNS dogs))\r\n  (VP (VBP bark)))\r\n",
        "(ROOT\n  (S (NP (NNS dogs)) (VP (VBP bark))))",
        "(TOP (S (NP (NNS dogs)) (VP (VBP bark))))",
    ],
)
def test_every_layout_reads_as_the_same_tree(text: str) -> None:
    assert [item.tree for item in read(text)] == [DOGS_BARK]


def test_several_trees_stand_on_one_line() -> None:
    assert [item.tree for item in read(f"{S} {S}{S}\n{S}")] == [DOGS_BARK] * 4


def test_lines_count_from_one_and_name_where_a_tree_starts() -> None:
    assert [item.line for item in read(f"\n{S}\n\n(S\n  (X a))\n{S}\n")] == [2, 4, 6]


def test_trees_laid_out_with_brackets_at_the_margin_are_read() -> None:
    flush_left = "(S\n(NP (NNS dogs))\n(VP (VBP bark))\n)\n"
    assert [item.tree for item in read(flush_left * 3)] == [DOGS_BARK] * 3


def test_reading_streams() -> None:
    def lines() -> Iterator[str]:
        yield S
        yield S
        raise AssertionError("read too far ahead")

    reader = iter_trees(lines())
    assert next(reader).tree == next(reader).tree == DOGS_BARK


def test_no_lines_give_no_trees() -> None:
    assert read("") == read("\n \n") == []


def test_function_tags_are_cut() -> None:
    text = "(S-TPC=1 (NP-SBJ-2 (NN a)) (PP=3 (-LRB- b)) (=X (NN c)) (-LRB- (NN d)))"
    assert read_one(text) == "(S (NP a) (PP b) (=X c) (-LRB- d))"
    assert read_one(text, strip_functions=False) == "(S-TPC=1 (NP-SBJ-2 a) (PP=3 b) (=X c) (-LRB- d))"


def test_traces_and_what_they_leave_empty_are_dropped() -> None:
    text = "(S (NP-SBJ (-NONE- *T*-1)) (SBAR (-NONE- 0) (S (-NONE- *))) (VP (VB go) (NP (-NONE- *))))"
    assert read(text) == [BracketedTree(Tree("S", [Tree("VP", ["go"])]), ("VB",), 1)]
    assert read_one(text, drop_empties=False) == "(S (NP *T*-1) (SBAR 0 (S *)) (VP go (NP *)))"


def test_the_outer_bracket_is_unwrapped_unless_it_would_leave_a_bare_word() -> None:
    assert read_one("( (S (X a)) )") == "(S a)"
    assert read_one("(ROOT (S (X a)))") == "(S a)"
    assert read_one("( (X a))") == read_one("(ROOT (X a))") == read_one("(X a)") == "(ROOT a)"
    assert read_one("(TOP (X a))") == "(TOP a)"
    assert read_one("( (S (X a)) (S (X b)))") == "(ROOT (S a) (S b))"
    assert read_one("(ROOT (S (X a)))", unwrap=False) == "(ROOT (S a))"


def test_tags_can_be_kept_in_the_tree() -> None:
    assert read_one(S, drop_tags=False) == "(S (NP (NNS dogs)) (VP (VBP bark)))"
    assert read_one("(ROOT (X a))", drop_tags=False) == "(ROOT (X a))"
    assert read_one("(S (NP (-NONE- *)) (VP (VB go)))", drop_tags=False) == "(S (VP (VB go)))"


def test_escapes_are_brackets_also_inside_words() -> None:
    text = "(S (-LRB- -LRB-) (X a-RRB-b) (X -LSB--RCB-) (X :-RRB-) (X -lrb-))"
    assert read(text)[0].tree.words() == ["(", "a)b", "[}", ":)", "-lrb-"]
    assert read(text)[0].tags == ("-LRB-", "X", "X", "X", "X")
    assert read_one(text, unescape=False) == "(S -LRB- a-RRB-b -LSB--RCB- :-RRB- -lrb-)"


def test_a_no_break_space_is_part_of_a_word() -> None:
    assert read("(S (X 1\u00a0000) (X \u2003))")[0].tree.words() == ["1\u00a0000", "\u2003"]


def test_files_without_tags() -> None:
    (item,) = read("( (S (NP the dogs) bark) )", tags="absent")
    assert item == BracketedTree(Tree("S", [Tree("NP", ["the", "dogs"]), "bark"]), None, 1)


@given(trees())
def test_tagged_round_trip(tree: Tree) -> None:
    tags = [f"T{i}" for i in range(len(tree.words()))]
    text = format_tree(tree, tags)
    assert list(iter_trees([text])) == [BracketedTree(tree, tuple(tags), 1)]
    assert parse_tree(format_tree(tree), tags="present", normalisation=Normalisation()) == tree


@given(trees(), st.data())
def test_any_layout_of_blanks_reads_the_same(tree: Tree, data: st.DataObject) -> None:
    blanks = st.sampled_from([" ", "\n ", "\r\n\t", "  "])
    text = "".join(data.draw(blanks) if character == " " else character for character in format_tree(tree))
    assert [item.tree for item in iter_trees(text.split("\n"))] == [tree]


@given(trees())
def test_tags_kept_as_written_are_constituents(tree: Tree) -> None:
    assert parse_tree(format_tree(tree), tags="present", normalisation=AS_WRITTEN) == parse_tree(format_tree(tree))


def test_the_treebank_is_written_and_read_back(gum_open: list[BracketedTree]) -> None:
    lines = [format_tree(item.tree, item.tags) for item in gum_open]
    again = list(iter_trees(lines))
    assert [(item.tree, item.tags) for item in again] == [(item.tree, item.tags) for item in gum_open]
    assert len(gum_open) == 3624 + 474 + 460


def test_words_without_a_known_tag_are_written_with_x() -> None:
    assert format_tree(Tree("S", ["a(b", Tree("NP", [")"])])) == "(S (X a-LRB-b) (NP (X -RRB-)))"


@pytest.mark.parametrize(
    "tree", [Tree("S", [""]), Tree("S", ["a b"]), Tree("S", ["a\n"]), Tree("N P", ["a"]), Tree("N(", ["a"])]
)
def test_what_cannot_be_read_back_is_not_written(tree: Tree) -> None:
    with pytest.raises(InputError):
        format_tree(tree)


@pytest.mark.parametrize("tags", [["A"], ["A", "B", "C"]])
def test_there_is_one_tag_a_word(tags: list[str]) -> None:
    with pytest.raises(ValueError, match="tags than words"):
        format_tree(DOGS_BARK, tags)


def test_a_tree_of_5000_words_needs_no_recursion() -> None:
    text = "(X (T w) " * 4999 + "(X (T w)" + ")" * 5000
    (item,) = read(text)
    assert item.tree.height == 5000
    assert format_tree(item.tree, item.tags).replace(" ", "") == text.replace(" ", "")


BAD = [
    ("(S (NP (NNS dogs)) (VP (VBP bark))\n", "file.ptb:2: this tree lacks 1 closing bracket before"),
    ("(S (NP (NNS dogs)) (VP (VBP bark))))\n", "file.ptb:2: a closing bracket that closes nothing"),
    ("(S (NP (NNS dogs))\n  (VP (VBP bark))))\n  (. .))\n", "file.ptb:3: a closing bracket that closes nothing"),
    ("(S )\n", "file.ptb:2: bracket (S) holds no word"),
    ("()\n", "file.ptb:2: bracket () holds no word"),
    ("(S (NP (-NONE- *)))\n", "file.ptb:2: a tree without words"),
    ("dogs bark\n", "file.ptb:2: 'dogs' outside a tree"),
    ("(S (NP (NNS dogs)) bark)\n", "file.ptb:2: word 'bark' has siblings"),
    ("(S (NP\n  the\n  (NNS\n dogs)))\n", "file.ptb:5: word 'the' has siblings"),
    ("(S (NP) (VP (VBP bark)))\n", "file.ptb:2: bracket (NP) holds no word"),
    ("(S (NP (NNS dogs))\n   (VP (VBP bark)\n", "file.ptb:2: this tree lacks 2 closing brackets before"),
]


@pytest.mark.parametrize(("bad", "message"), BAD)
def test_a_bad_tree_is_named_by_file_and_line_with_a_remedy(bad: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        read(f"{S}\n{bad}{S}\n")
    assert str(caught.value).startswith(message)
    assert "; " in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("bad", "message"), BAD)
@pytest.mark.parametrize("good_before", [0, 3])
def test_a_bad_tree_does_not_lose_the_others(bad: str, message: str, good_before: int) -> None:
    found, errors = read_on(f"{S}\n" * good_before + bad + f"{S}\n" * 5)
    assert [item.tree for item in found] == [DOGS_BARK] * (good_before + 5)
    assert len(errors) == 1
    assert message.split(": ")[1].removesuffix(" before") in errors[0]


def test_an_end_inside_a_tree_is_named_by_the_line_of_its_start() -> None:
    with pytest.raises(InputError, match=r"file.ptb:2: this tree lacks 1 closing bracket before the end of the file"):
        read(f"{S}\n(S (NP (NNS dogs))\n  (VP (VBP bark))\n")


def test_an_end_inside_the_first_tree_does_not_lose_the_others() -> None:
    found, errors = read_on(f"(S (NP (NNS dogs))\n{S}\n{S}\n(S (X\n")
    assert [item.tree for item in found] == [DOGS_BARK] * 2
    assert [error.split(": ")[0] for error in errors] == ["file.ptb:1", "file.ptb:4"]


def test_many_bad_trees_are_each_reported_once() -> None:
    found, errors = read_on(f"{S}\n(S (X a)\n(S (X a)))\n" * 300)
    assert len(found) == 300
    assert [error.split(": ")[0] for error in errors] == [
        f"file.ptb:{line + i}" for line in range(1, 900, 3) for i in (1, 2)
    ]


def test_trees_before_an_error_are_given_first() -> None:
    reader = iter_trees([S, "(S"])
    assert next(reader).tree == DOGS_BARK
    with pytest.raises(InputError):
        next(reader)


def test_a_file_without_tags_read_as_tagged_names_the_option() -> None:
    with pytest.raises(InputError, match='tags="absent"'):
        read("(S (NP the dogs) (VP bark))")


def test_parse_tree_wants_exactly_one_tree() -> None:
    with pytest.raises(InputError, match="2 trees where one was expected"):
        parse_tree("(S a) (S b)")
    with pytest.raises(InputError, match="0 trees"):
        parse_tree("")


def test_unknown_options_are_refused() -> None:
    with pytest.raises(InputError, match="tags='none'"):
        read(S, tags="none")
    with pytest.raises(InputError, match="on_error = 'ignore'"):
        read(S, on_error="ignore")
    with pytest.raises(ValueError, match="list for the errors"):
        read(S, on_error="skip")


@pytest.mark.parametrize("split", ["train", "dev", "test"])
def test_raw_penn_trees_become_their_published_clean_form(split: str) -> None:
    raw = iter_trees(shared_lines(f"wsj-sample/{split}.raw.ptb.gz"))
    clean = iter_trees(shared_lines(f"wsj-sample/{split}.clean.ptb.gz"), normalisation=Normalisation(unwrap=False))
    for normal, published in zip(raw, clean, strict=True):
        assert normal.tags == published.tags
        if normal.tree != published.tree:
            assert published.tree == Tree("ROOT", [normal.tree])
