from __future__ import annotations

import gzip
import io
import lzma
import re
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treelm.corpora.preparing import prepare
from treelm.corpora.readers import read_sentences
from treelm.corpora.sentence import Sentence
from treelm.errors import InputError
from treelm.trees.tree import Tree

GOOD = b"(S (NP (D the) (N dog)) (VP (V barks)))\n"
CONLLU = (
    b"# sent_id = a-1\n# text = Dogs bark\n"
    b"1-2\tDogsbark\t_\t_\t_\t_\t_\t_\t_\t_\n"
    b"1\tDogs\t_\tNOUN\t_\t_\t2\tnsubj\t_\t_\n"
    b"2\tbark\t_\tVERB\t_\t_\t0\troot\t_\t_\n\n"
)


def words(content: bytes, *, format: str = "text", **options: object) -> list[tuple[str, ...]]:
    found = read_sentences(io.BytesIO(content), format=format, **options)  # type: ignore[arg-type]
    return [sentence.words for sentence in found]


@pytest.mark.parametrize(
    ("content", "options", "expected"),
    [
        (b"the dog\nbarks", {}, ["the dog", "barks"]),
        (b"\xef\xbb\xbfthe dog\r\nbarks\r\n", {}, ["the dog", "barks"]),
        (gzip.compress(b"a b\n", mtime=0), {}, ["a b"]),
        (lzma.compress(b"a b\n"), {}, ["a b"]),
        (b"a\n\n \nb\n", {}, ["a", "b"]),
        (b"a\n\n \nb\n", {"empty_lines": True}, ["a", "", "", "b"]),
        (b"(S (NP the dog) barks)", {"format": "brackets", "tags": "absent"}, ["the dog barks"]),
        (GOOD.strip() * 3, {"format": "brackets"}, ["the dog barks"] * 3),
        (b"(S\n(NP (D the)\n(N dog)))\n(S\n(NP (N cats)))\n", {"format": "brackets"}, ["the dog", "cats"]),
        (b"(S (W w) " * 5000 + b"(W w)" + b")" * 5000, {"format": "brackets"}, [" ".join("w" * 5001)]),
    ],
)
def test_words_of_sentences(content: bytes, options: dict[str, Any], expected: list[str]) -> None:
    assert [" ".join(one) for one in words(content, **options)] == expected


def test_blank_lines_between_trees_are_sentences_on_request_only() -> None:
    content = b"\n" + GOOD + b" \n(S\n\n (X a))\n\n"
    assert words(content, format="brackets") == [("the", "dog", "barks"), ("a",)]
    found = list(read_sentences(io.BytesIO(content), format="brackets", empty_lines=True))
    assert [sentence.words for sentence in found] == [(), ("the", "dog", "barks"), (), ("a",), ()]
    assert [sentence.line for sentence in found] == [1, 2, 3, 4, 7]
    assert [sentence.tree is None for sentence in found] == [True, False, True, False, True]


@pytest.mark.parametrize(
    ("content", "columns"),
    [
        (b"item\tword\trt\n1\tThe\t310\n1\tdog\t320\n", 3),
        (b"1\tThe dog barks .\n2\tIt sleeps .\n3\tYes .\n", 2),
        (b"the dog\tbarks\nit\tsleeps\nyes\n", None),
        (b"the dog barks\nit saw us\nwe saw it\n", None),
        (b"\tThe dog barks .\n\tIt sleeps .\n\tYes .\n", None),
    ],
)
def test_a_table_is_no_text_unless_somebody_says_so(content: bytes, columns: int | None, tmp_path: Path) -> None:
    kept, path = words(content), tmp_path / "a.txt"
    path.write_bytes(content)
    assert len(kept) == 3
    if columns is None:
        assert [sentence.words for sentence in read_sentences(path)] == kept
        return
    with pytest.raises(InputError, match=rf":1: looks like a table of {columns} columns; .*--layout table.*format = "):
        list(read_sentences(path))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"The\ndog\nbarks\n\nYes\n", ":1: each line has one word .* --layout words"),
        (
            b"The dog barks at\nthe cat . It sleeps in\nthe house .\n",
            ":1: lines seem to end within .* --split-sentences",
        ),
        (b"dog\ncat\ncow\nhen\n", ""),
        (b"The dog barks . It sleeps .\n", ""),  # one line alone
        (b"it cost $ N\nsays mr. N\nyes\n", ""),  # of Mikolov's Penn Treebank
        (b"the dog barks\nit sleeps\nyes\n", ""),  # in lower case, without marks
        (b"The dog barks .\n\nIt sleeps . Yes .\nMr. Dog barks\n", ""),
    ],
)
def test_text_that_is_not_one_sentence_a_line_is_told_of(
    content: bytes, message: str, caplog: pytest.LogCaptureFixture
) -> None:
    words(content)
    assert len(caplog.messages) == bool(message)
    assert all(re.search(message, line) for line in caplog.messages)


def test_conllu_gives_words_tree_and_identifier() -> None:
    (sentence,) = read_sentences(io.BytesIO(CONLLU), format="conllu")
    assert sentence == Sentence(
        words=("Dogs", "bark"),
        tree=Tree.parse("(X Dogs bark)"),
        tags=("NOUN", "VERB"),
        text="Dogs bark",
        identifier="a-1",
        source="<stream>",
        line=1,
    )


@pytest.mark.parametrize(
    ("format", "good", "bad"),
    [
        ("brackets", GOOD, b"(S (NP (D the))\n"),
        ("brackets", GOOD, b"(S (NP (D the))))\n"),
        ("brackets", GOOD, b"(S (NP (D the)) ())\n"),
        ("brackets", GOOD, b"no tree\n"),
        ("brackets", GOOD, b"(S)\n"),
        ("brackets", GOOD, b"(S (N d\xffg))\n"),
        ("conllu", CONLLU, b"1\ta\t_\t_\t_\t_\t2\t_\t_\t_\n2\tb\t_\t_\t_\t_\t1\t_\t_\t_\n\n"),
        ("conllu", CONLLU, b"1\ta\t_\t_\t_\t_\t0\n\n"),
        ("conllu", CONLLU, b"1\t\xff\t_\t_\t_\t_\t0\t_\t_\t_\n\n"),
        ("text", b"a b\n", b"a \xff\n"),
    ],
)
@pytest.mark.parametrize("place", [0, 1, 50])
def test_one_bad_sentence_does_not_lose_the_others(format: str, good: bytes, bad: bytes, place: int) -> None:
    content = good * place + bad + good * (99 - place)
    skipped: list[InputError] = []
    assert len(words(content, format=format, skipped=skipped)) == 99
    (error,) = skipped
    first_line = place * good.count(b"\n") + 1
    assert error.where is not None
    assert int(error.where.rpartition(":")[2]) - first_line in range(bad.count(b"\n"))
    with pytest.raises(InputError) as caught:
        words(content, format=format)
    assert str(caught.value) == str(error)


@given(st.lists(st.sampled_from([GOOD, b"\n", b"(S\n  (N a)\n\n  (N b))\n", b"(S (N a)\n"]), max_size=8))
def test_a_tree_that_never_closes_ends_before_the_next_one(pieces: list[bytes]) -> None:
    # A first tree that is closed tells the layout; a file may not begin with half a tree for this.
    content = GOOD + b"".join(pieces)
    skipped: list[InputError] = []
    found = list(read_sentences(io.BytesIO(content), format="brackets", skipped=skipped))
    assert len(found) == 1 + sum(piece in (GOOD, b"(S\n  (N a)\n\n  (N b))\n") for piece in pieces)
    assert len(skipped) == pieces.count(b"(S (N a)\n")
    for sentence in found:
        assert content.split(b"\n")[sentence.line - 1].startswith(b"(S")


@pytest.mark.parametrize("format", ["auto", "text"])
def test_standard_input_is_text_unless_a_format_is_given(format: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a b\n")))
    (sentence,) = read_sentences("-", format=format)
    assert sentence.where == "<stdin>:1"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(GOOD)))
    with pytest.raises(InputError, match="looks like brackets") if format == "auto" else nullcontext():
        list(read_sentences("-", format=format))


def test_reading_streams() -> None:
    def endless() -> io.RawIOBase:
        class Endless(io.RawIOBase):
            def readable(self) -> bool:
                return True

            def readinto(self, buffer: bytearray) -> int:  # type: ignore[override]
                buffer[:] = (b"(S (N a))\n" * (len(buffer) // 10 + 1))[: len(buffer)]
                return len(buffer)

        return Endless()

    found = read_sentences(io.BufferedReader(endless(), 8000), format="brackets")
    assert [next(found).line for _ in range(3)] == [1, 2, 3]


def test_a_truncated_gzip_file_keeps_what_stands_before_the_damage(tmp_path: Path) -> None:
    path = tmp_path / "a.txt.gz"
    path.write_bytes(gzip.compress("".join(f"word{n * 7919 % 10007} b\n" for n in range(5000)).encode())[:-2000])
    skipped: list[InputError] = []
    kept = list(read_sentences(path, skipped=skipped))
    assert len(kept) > 100
    assert "packed data is truncated" in skipped[-1].found
    corpus = prepare([path], tmp_path / "corpus", on_error="skip")
    assert len(corpus) == len([one for one in kept if one.words])
    assert "packed data is truncated" in corpus.skipped[-1].found
    with pytest.raises(InputError, match="packed data"):
        prepare([path], tmp_path / "other")


SHARED = Path(__file__).parents[2].parent / "shared" / "data"
WSJ_SAMPLE = SHARED / "wsj-sample"
TREE = "(S (NP (DT The) (NN 3rd-floor)) (, ,) (VP (VBZ costs) (NP ($ $) (CD 1,200.50))) (PRN (-LRB- -LRB-)) (. .))\n"


def write(tmp_path: Path, text: str, name: str = "train.ptb") -> Path:
    path = tmp_path / name
    path.write_text(text)
    return path


def test_words_are_lower_case_with_digits_as_n_and_without_punctuation(tmp_path: Path) -> None:
    path = write(tmp_path, TREE + "(S (. .))\n" + "(S (UH Yes))\n")
    first, second = read_sentences(path, preprocess="prpn")
    assert first.words == ("the", "Nrd-floor", "costs", "N,N.N")
    assert first.tags == ("DT", "NN", "VBZ", "CD")
    assert str(first.tree) == "(S (NP the Nrd-floor) (VP costs (NP N,N.N)))"
    assert second.words == ("yes",)
    assert second.line == 3


@pytest.mark.parametrize(
    ("tagged", "expected"),
    [
        ("(NP ($ $) (CD 1,200.50) (NN %) (# #))", "$ N N #"),
        ("(NP (CD 3) (CD 1\\/2) (CD 1988-89) (CD 10:30) (CD 9.))", "N N N N N"),
        ("(NP (JJ 10-Year) (CD 1980s) (CD '82) (NNP A-1) (NNP A.))", "10-year 1980s '82 a-1 a."),
        ("(S (`` ``) (NP (NNS Dogs) (POS ')) ('' ') (: --) (-LRB- -LRB-) (VP (VBP bark)) (. ?))", "dogs ' bark"),
        ("(NP (NN AT&T) (CC &) (SYM *))", "at&t & *"),
    ],
)
def test_words_of_mikolovs_text(tagged: str, expected: str, tmp_path: Path) -> None:
    (sentence,) = read_sentences(write(tmp_path, tagged), preprocess="mikolov")
    assert " ".join(sentence.words) == expected
    assert sentence.tree is not None
    assert sentence.tree.words() == list(sentence.words)
    assert len(sentence.tags or ()) == len(sentence.words)


def test_mikolovs_text_comes_out_of_the_wsj_sample_word_for_word() -> None:
    """All 3,910 sentences that are left of the sample's 3,914, in the order in which they begin the text."""
    if not WSJ_SAMPLE.exists() or not (SHARED / "ptb-lm").exists():
        pytest.skip("needs ../shared/data/wsj-sample and ptb-lm (Penn Treebank, not redistributable)")
    text = [sentence.words for sentence in read_sentences(SHARED / "ptb-lm/ptb.train.txt.gz")]
    vocabulary = {word for words in text for word in words}
    ours = [
        tuple(word if word in vocabulary else "<unk>" for word in sentence.words)
        for split in ("train", "dev", "test")
        for sentence in read_sentences(WSJ_SAMPLE / f"{split}.raw.ptb.gz", preprocess="mikolov")
    ]
    assert len(ours) == 3910
    assert ours == text[1:3911]  # the first line is a list of words


def test_the_wsj_sample_keeps_as_many_short_sentences_as_the_released_evaluation() -> None:
    if not WSJ_SAMPLE.exists():
        pytest.skip("needs ../shared/data/wsj-sample (Penn Treebank sample, not redistributable)")
    lengths = [
        len(sentence.words)
        for split in ("train", "dev", "test")
        for sentence in read_sentences(WSJ_SAMPLE / f"{split}.raw.ptb.gz", preprocess="prpn")
    ]
    assert sum(length <= 10 for length in lengths) == 555
    assert sum(length <= 40 for length in lengths) == 3764
