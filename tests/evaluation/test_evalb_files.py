import gzip
from pathlib import Path

import pytest

from treelm.errors import InputError
from treelm.evaluation.evalb_files import bracketing_of, parse_bracketing, read_bracketings
from treelm.trees.tree import Span, Tree


def test_words_tags_and_spans_in_opening_order() -> None:
    sentence = parse_bracketing("(S (NP-SBJ (DT the) (NN dog)) (VP (VBZ barks)) (. .))")
    assert sentence.words == ("the", "dog", "barks", ".")
    assert sentence.tags == ("DT", "NN", "VBZ", ".")
    assert sentence.spans == (Span("S", 0, 4), Span("NP-SBJ", 0, 2), Span("VP", 2, 3))


def test_outer_bracket_without_label_and_empty_constituents() -> None:
    sentence = parse_bracketing("( (S (X) (NN a)))")
    assert sentence.spans == (Span("", 0, 1), Span("S", 0, 1), Span("X", 0, 0))


def test_no_break_space_is_part_of_a_word_and_carriage_return_is_not() -> None:
    assert parse_bracketing("(S (NN 10\u00a0000))\r").words == ("10\u00a0000",)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("(S (NN a)", "1 brackets are not closed"),
        ("(S (NN a)))", "a closing bracket too many"),
        ("(S (NP the dog))", "word 'the' has no bracket"),
        ("a (NN b)", "word 'a' has no bracket"),
    ],
)
def test_what_cannot_be_read_is_said_and_nothing_is_raised(text: str, problem: str) -> None:
    sentence = parse_bracketing(text)
    assert sentence.problem is not None
    assert problem in sentence.problem
    assert sentence.words == ()


def test_depth_is_bounded_by_memory_only() -> None:
    depth = 20_000
    sentence = parse_bracketing("(A " * depth + "(NN a)" + ")" * depth)
    assert len(sentence.spans) == depth
    tree = Tree("A", ["a"])
    for _ in range(depth - 1):
        tree = Tree("A", [tree])
    assert bracketing_of(tree).spans == sentence.spans


def test_tree_in_memory_equals_its_brackets() -> None:
    tree = Tree("S", [Tree("NP", ["the", "dog"]), Tree("VP", ["barks"])])
    read = parse_bracketing("(S (NP (DT the) (NN dog)) (VP (VBZ barks)))")
    assert bracketing_of(tree, tags=read.tags) == read


def test_line_layout_keeps_empty_lines_as_sentences(tmp_path: Path) -> None:
    path = tmp_path / "p.ptb"
    path.write_bytes("\ufeff(S (NN a))\r\n\r\n(S (NN b))\r\n".encode())
    sentences = read_bracketings(path)
    assert [sentence.words for sentence in sentences] == [("a",), (), ("b",)]
    assert sentences[2].where == f"{path}:3"


def test_one_broken_line_leaves_the_others(tmp_path: Path) -> None:
    path = tmp_path / "p.ptb"
    path.write_text("(S (NN a))\n(S (NN a)\n(S (NN b))\n")
    assert [sentence.problem is None for sentence in read_bracketings(path)] == [True, False, True]


def test_trees_over_several_lines_are_recognised(tmp_path: Path) -> None:
    path = tmp_path / "p.ptb.gz"
    path.write_bytes(gzip.compress(b"\n( (S\n    (NN a)\n    (VP (VB b))))\n\n(S (NN c)) (S (NN d))\n"))
    sentences = read_bracketings(path)
    assert [sentence.words for sentence in sentences] == [("a", "b"), ("c",), ("d",)]
    assert sentences[0].where == f"{path}:2"


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", "no trees"),
        (b" \n\n", "no trees"),
        (b"\xff\xfe", "byte 0xff is not UTF-8"),
        (b"(S\n(NN a)\n", "p.ptb:1: 1 brackets"),
        (b"(S\n(NN a)))\n", "p.ptb:2: a closing bracket too many"),
    ],
)
def test_unusable_files_are_user_errors(tmp_path: Path, content: bytes, expected: str) -> None:
    path = tmp_path / "p.ptb"
    path.write_bytes(content)
    with pytest.raises(InputError, match=expected):
        read_bracketings(path)
