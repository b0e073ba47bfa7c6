"""What the subcommands make of their input before they work: none is written over, none is taken for what it is not."""

import gzip
import io
import os
import re
import shutil
from pathlib import Path

import pytest

from tests.cli.conftest import Outcome, Treelm
from tests.legacy.make import HERE as RUNS

TREE = "(S (NP (D The) (N city)) (VP (V was) (ADJP (J old))) (. .))\n"


def assert_refused(outcome: Outcome, expected: str) -> None:
    assert outcome.code == 2, outcome
    assert outcome.err.count("\n") == 1, outcome.err
    assert expected in outcome.err
    assert outcome.out == ""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with a treebank under several names."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TREELM_CACHE", str(tmp_path / "cache"))
    (tmp_path / "in.ptb").write_text(TREE)
    (tmp_path / "link.ptb").symlink_to("in.ptb")
    os.link(tmp_path / "in.ptb", tmp_path / "hard.ptb")
    os.link(tmp_path / "in.ptb", tmp_path / "drawn.svg")
    os.link(tmp_path / "in.ptb", tmp_path / "out.tsv.json")
    os.link(tmp_path / "in.ptb", tmp_path / "in.ptb.gold.ptb")
    (tmp_path / "train.txt").write_text("one two")
    return tmp_path


OWN_INPUT = {
    "surprisal": "surprisal no-run in.ptb --output ./in.ptb",
    "surprisal, a link": "surprisal no-run in.ptb --output link.ptb",
    "surprisal, its metadata": "surprisal no-run in.ptb --output out.tsv",
    "parse, another name": "parse no-run link.ptb --output hard.ptb",
    "parse, its figure": "parse no-run in.ptb --figure drawn.svg",
    "evaluate, its summary": "evaluate {lstm} --data in.tsv --format brackets --summary in.tsv",
    "evaluate, its trees": "evaluate {rnng} --data in.ptb --trees .",
    "compare, its page": "compare no-run --data in.html --report in.html",
    "compare, its folder": "compare no-run --pairs comparison.csv --output .",
    "data text8": "data text8 train.txt --output .",
}


@pytest.mark.parametrize("name", OWN_INPUT)
def test_no_subcommand_writes_over_its_input(name: str, folder: Path, treelm: Treelm) -> None:
    for other in ("in.tsv", "in.html", "comparison.csv"):
        (folder / other).write_text(TREE)
    before = {path: path.read_bytes() for path in folder.iterdir()}
    line = OWN_INPUT[name].replace("{lstm}", str(RUNS / "lstm")).replace("{rnng}", str(RUNS / "rnng"))
    assert_refused(treelm(*line.split()), "the output is the input")
    assert {path: path.read_bytes() for path in folder.iterdir()} == before


def test_standard_input_may_be_the_file_that_would_be_written(
    folder: Path, treelm: Treelm, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (folder / "in.ptb").open() as stream:
        monkeypatch.setattr("sys.stdin", stream)
        assert_refused(treelm("parse", "no-run", "-", "--output", "in.ptb"), "the output is the input")


def test_a_device_may_be_read_and_written(treelm: Treelm) -> None:
    assert "no such run folder" in treelm("parse", "no-run", "/dev/null", "--output", "/dev/null").err


CONLLU = "# text = The city\n1\tThe\tthe\tDET\t_\t_\t2\tdet\t_\t_\n2\tcity\tcity\tNOUN\t_\t_\t0\troot\t_\t_\n"


@pytest.fixture
def piped(treelm: Treelm, monkeypatch: pytest.MonkeyPatch) -> Treelm:
    """Call the command line with this standard input: ``piped(content, subcommand, ...)``."""

    def call(content: str | Path, *arguments: str | Path) -> Outcome:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(str(content).encode())))
        return treelm(*arguments)

    return call


@pytest.mark.parametrize(("content", "format", "num_words"), [(TREE, "brackets", 5), (CONLLU, "conllu", 2)])
def test_trees_on_standard_input_are_not_taken_for_text(
    content: str, format: str, num_words: int, piped: Treelm
) -> None:
    refused = piped(content, "surprisal", RUNS / "ngram", "-")
    assert_refused(refused, f"say format {format}")
    told = piped(content, "surprisal", RUNS / "ngram", "-", "--format", format)
    assert (told.code, told.out.count("\n")) == (0, 1 + num_words)
    as_text = piped(content, "surprisal", RUNS / "ngram", "-", "--format", "text")
    assert as_text.code == 0, as_text.err
    assert as_text.out.count("\n") > 1 + num_words


@pytest.mark.parametrize("subcommand", ["parse", "data annotate"])
def test_no_subcommand_takes_trees_on_standard_input_for_text(subcommand: str, piped: Treelm, folder: Path) -> None:
    run = ["--parser", RUNS / "rnng", "--output", "out.ptb"] if " " in subcommand else []
    arguments = [*subcommand.split(), "-", *run] if " " in subcommand else [subcommand, RUNS / "rnng", "-"]
    assert_refused(piped(TREE, *arguments), "<stdin>:1: looks like brackets")


@pytest.mark.parametrize(
    ("name", "expected"),
    [("adir", "adir: a folder"), ("loop", "levels of symbolic links"), ("loop.ptb", "levels of symbolic links")],
)
def test_what_is_no_file_is_called_what_it_is(name: str, expected: str, folder: Path, treelm: Treelm) -> None:
    (folder / "adir").mkdir()
    for loop in ("loop", "loop.ptb"):
        (folder / loop).symlink_to(loop)
    assert_refused(treelm("surprisal", RUNS / "ngram", name), expected)
    (folder / "r.toml").write_text(f'[data]\ntrain = "{name}"\n[model]\nsystem = "ngram"\n')
    assert_refused(treelm("train", "r.toml", "--output", "run"), expected)


def test_a_path_with_a_nul_character_in_a_recipe_is_told(folder: Path, treelm: Treelm) -> None:
    (folder / "r.toml").write_text('[data]\ntrain = "tr.ptb\\u0000"\n[model]\nsystem = "ngram"\n')
    assert_refused(treelm("train", "r.toml", "--output", "run"), "train = 'tr.ptb\\x00' holds a NUL character; remove it")


@pytest.mark.parametrize(
    "arguments",
    [
        ["surprisal", "", "in.ptb"],
        ["parse", "", "in.ptb"],
        ["generate", ""],
        ["audit", ""],
        ["pairs", "", "pairs.tsv"],
        ["compare", ""],
        ["data", "annotate", "in.ptb", "--parser", "", "--output", "out.ptb"],
        ["train", "demo", "--output", "run", "--set", "training.start_from=''"],
    ],
)
def test_an_empty_run_is_not_the_current_folder(arguments: list[str], folder: Path, treelm: Treelm) -> None:
    shutil.copytree(RUNS / "rnng", folder, dirs_exist_ok=True)
    (folder / "pairs.tsv").write_text("good\tbad\na\tb\n")
    more = ["--good", "good", "--bad", "bad"] if arguments[0] == "pairs" else []
    assert_refused(treelm(*arguments, *more), "no run given")


def test_the_lost_rest_of_a_damaged_file_is_not_called_one_sentence(folder: Path, treelm: Treelm) -> None:
    lines = "".join(f"word{number * 7919 % 10007} b\n" for number in range(500))
    (folder / "cut.txt.gz").write_bytes(gzip.compress(lines.encode())[:-300])
    outcome = treelm("surprisal", RUNS / "ngram", "cut.txt.gz", "--on-error", "skip")
    assert outcome.code == 3
    assert re.search(r"\nlost: the rest of the file from cut.txt.gz:\d+ on, any number of sentences\n$", outcome.err)
    assert "left out" not in outcome.err
