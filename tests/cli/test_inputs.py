"""Input that is odd but good: pipes, any script, long and short sentences, words that nothing knows."""

import json
import os
import re
import threading
from pathlib import Path

import pytest

from tests.cli.conftest import Treelm
from tests.legacy.make import HERE as RUNS

UNKNOWN = r"\d of \d words \([\d.]+%\) are unknown to [^\n]*\n"
NARROW = ("--action-beam", "1", "--word-beam", "1", "--fast-track", "0")
SEARCHING = RUNS / "rnng-in-order-attention"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TREELM_CACHE", str(tmp_path / "cache"))
    (tmp_path / "in.txt").write_text("The city was old .\nI think so .\n")
    return tmp_path


@pytest.mark.parametrize("input_is_pipe", [True, False])
def test_input_and_output_may_be_pipes_and_stay_them(treelm: Treelm, input_is_pipe: bool) -> None:
    os.mkfifo("pipe")
    plain = treelm("surprisal", RUNS / "ngram", "in.txt").out
    found: list[str] = []
    other = (
        (lambda: Path("pipe").write_text(Path("in.txt").read_text()))
        if input_is_pipe
        else (lambda: found.append(Path("pipe").read_text()))
    )
    thread = threading.Thread(target=other)
    thread.start()
    files = ("pipe", "--format", "text") if input_is_pipe else ("in.txt", "--output", "pipe")
    outcome = treelm("surprisal", RUNS / "ngram", *files)
    thread.join()
    assert outcome.code == 0
    assert re.fullmatch(UNKNOWN, outcome.err)
    assert [outcome.out, *found] == ([plain] if input_is_pipe else ["", plain])
    assert Path("pipe").is_fifo()
    assert not Path("pipe.json").exists()


@pytest.mark.parametrize(("run", "widths"), [("rnng", ("--action-beam", "4", "--word-beam", "2")), ("som", ())])
def test_a_long_sentence_and_sentences_of_one_lose_no_word(
    folder: Path, treelm: Treelm, run: str, widths: tuple[str, ...]
) -> None:
    (folder / "sizes.txt").write_text("city " * 200 + "\n.\nOh\n")
    outcome = treelm("parse", RUNS / run, "sizes.txt", *widths)
    assert (outcome.code, outcome.err) == (0, "")
    assert [len(re.findall(r"\(X [^\s()]+\)", tree)) for tree in outcome.out.splitlines()] == [200, 1, 1]


WORDS = [
    "\U0001f469\u200d\U0001f4bb",
    "e\u0301te\u0301",
    "\u05e9\u05dc\u05d5\u05dd",
    "\u202eabc",
    "\u0928\u092e\u0938\u094d\u0924\u0947",
    "a\u00a0b",
    "\ufeff",
]


def test_words_of_any_script_come_out_as_they_went_in(folder: Path, treelm: Treelm) -> None:
    (folder / "words.txt").write_text(" ".join(WORDS) + "\n", encoding="utf-8")
    outcome = treelm("surprisal", SEARCHING, "words.txt", "--action-beam", "4", "--word-beam", "2")
    assert outcome.code == 0
    assert re.fullmatch(UNKNOWN + r"([^\n]* summed\n)?(beam 4/2/1: nothing says [^\n]*\n)", outcome.err)
    assert [row.split("\t")[2] for row in outcome.out.splitlines()[1:]] == WORDS


def test_what_a_search_has_lost_is_counted(folder: Path, treelm: Treelm) -> None:
    outcome = treelm("surprisal", SEARCHING, "in.txt", *NARROW, "--output", "out.tsv")
    assert outcome.code == 0
    num_infinite = (folder / "out.tsv").read_text().count("\tinf\t")
    assert num_infinite > 0
    assert outcome.err.startswith(f"{num_infinite} of 9 words have inf bits")
    metadata = json.loads((folder / "out.tsv.json").read_text(), parse_constant=lambda name: pytest.fail(name))
    assert (metadata["num_impossible_words"], metadata["word_surprisal_bits"]) == (num_infinite, None)
    (folder / "pairs.tsv").write_text("grammatical\tungrammatical\nthe dog barks\tthe dog bark\n")
    outcome = treelm("pairs", SEARCHING, "pairs.tsv", *NARROW, "--json")
    assert json.loads(outcome.out)["num_pairs_with_impossible_sentences"] == 1
    assert "1 of 1 pairs have sentences of inf bits" in outcome.err
    assert "gives them probability 0; try --threshold 10" in outcome.err
    outcome = treelm("syntaxgym", SEARCHING, *NARROW, "--suites", "center_embed", "--json", "--references")
    found = json.loads(outcome.out)["suites"]["center_embed"]
    assert 0 < found["num_impossible"] <= found["num_items"]
    assert f"{found['num_impossible']} of {found['num_items']} items have regions of inf bits" in outcome.err


TABLE = """item,cond,word_id,word
1,a,1,The
1,a,2,dog
2,a,1,It
2,a,2
3,a,1,A
3,b,1,
4,a,1,The
4,b,1,The
4,a,2,dog
5,a,1,It
,a,2,is
6,a,1,It
"""


def test_bad_sentences_of_a_table_are_left_out_and_named(treelm: Treelm, tmp_path: Path) -> None:
    (tmp_path / "words.csv").write_text(TABLE)
    call = ("surprisal", RUNS / "ngram", tmp_path / "words.csv", "--sentence-column", "item", "cond")
    assert treelm(*call).code == 2
    outcome = treelm(*call, "--on-error", "skip")
    assert outcome.code == 3
    assert [row.split("\t")[:3] for row in outcome.out.splitlines()[1:]] == [
        ["1", "a", "The"],
        ["1", "a", "dog"],
        ["4", "b", "The"],
        ["5", "a", "It"],
        ["6", "a", "It"],
    ]
    for line, found in (
        (5, "3 cells under 4 columns, in or beside sentence '2, a'"),
        (5, "3 cells under 4 columns, in or beside sentence '3, a'"),
        (7, "an empty word"),
        (10, "sentence '4, a' is not one sentence: rows of it come after sentence '4, b'"),
        (12, "an empty sentence or document id"),
    ):
        assert f"skipped: {tmp_path / 'words.csv'}:{line}: {found}" in outcome.err


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16"])
@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("in.txt", "le café .\n"),
        ("in.csv", "sentence_id,word\n1,le\n1,café\n1,.\n"),
        (
            "in.conllu",
            "".join(f"{n}\t{w}\t_\t_\t_\t_\t{n - 1}\t_\t_\t_\n" for n, w in enumerate(["le", "café", "."], 1)),
        ),
    ],
    ids=["text", "table", "conllu"],
)
def test_input_of_another_encoding_is_named_and_read(
    name: str, content: str, encoding: str, folder: Path, treelm: Treelm
) -> None:
    (folder / name).write_bytes(content.encode(encoding))
    refused = treelm("surprisal", RUNS / "ngram", name)
    assert (refused.code, "--encoding" in refused.err) == (2, True), refused.err
    found = treelm("surprisal", RUNS / "ngram", name, "--encoding", encoding)
    assert found.code == 0, found.err
    assert [row.split("\t")[2] for row in found.out.splitlines()] == ["word", "le", "café", "."]


def test_bad_pairs_are_left_out_and_readers_told_of(treelm: Treelm, tmp_path: Path) -> None:
    (tmp_path / "pairs.csv").write_text("good,bad\nthe dog barks .,dog the .\nthe,\nthe dog barks .,dog the .\n")
    call = ("pairs", RUNS / "ngram", tmp_path / "pairs.csv", "--good", "good", "--bad", "bad", "--json")
    assert treelm(*call).code == 2
    outcome = treelm(*call, "--on-error", "skip")
    assert (outcome.code, json.loads(outcome.out)["overall"]["pairs"]) == (3, 2)
    assert "pairs.csv:3: an empty sentence" in outcome.err
    assert "1 different pairs in 2 rows" in outcome.err
