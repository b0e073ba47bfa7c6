"""What broke the subcommands once: every failure is one line and exit code 2, and no output is lost in silence."""

import csv
import os
import subprocess
import sys
from pathlib import Path
from typing import IO

import pytest

from tests.cli.conftest import Treelm


@pytest.fixture
def stimuli(tmp_path: Path) -> Path:
    path = tmp_path / "stimuli.txt"
    path.write_text("the dog barks .\nthe cat sleeps .\n")
    return path


def assert_one_line(err: str, *, code: int, expected: str) -> None:
    assert code == 2, err
    assert err.count("\n") == 1, err
    assert expected in err


@pytest.mark.parametrize("subcommand", ["surprisal", "parse"])
@pytest.mark.parametrize("size", ["0", "-1"])
def test_a_batch_size_below_one_is_refused(
    treelm: Treelm, project: Path, stimuli: Path, subcommand: str, size: str
) -> None:
    outcome = treelm(subcommand, project / "run", stimuli, "--batch-size", size)
    assert_one_line(outcome.err, code=outcome.code, expected=f"batch_size = {size}")


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("num-sentences", "-3"),
        ("max-words", "0"),
        ("seed", "-5"),
        ("seed", "99999999999999999999"),
        ("temperature", "0"),
        ("temperature", "nan"),
        ("temperature", "inf"),
        ("temperature", "1e-320"),
    ],
)
def test_generate_refuses_numbers_that_cannot_be(treelm: Treelm, project: Path, option: str, value: str) -> None:
    outcome = treelm("generate", project / "run", f"--{option}", value)
    assert_one_line(outcome.err, code=outcome.code, expected=option.replace("-", "_"))


def test_generate_of_no_sentences_is_empty(treelm: Treelm, project: Path) -> None:
    assert treelm("generate", project / "run", "--num-sentences", "0") == (0, "", "")


def test_audit_refuses_a_negative_number_of_sentences(treelm: Treelm, project: Path, stimuli: Path) -> None:
    outcome = treelm("audit", project / "run", stimuli, "--num-sentences", "-1")
    assert_one_line(outcome.err, code=outcome.code, expected="num_sentences = -1")


def test_an_output_that_is_a_folder_is_refused(treelm: Treelm, project: Path, stimuli: Path, tmp_path: Path) -> None:
    outcome = treelm("parse", project / "run", stimuli, "--output", tmp_path)
    assert_one_line(outcome.err, code=outcome.code, expected=str(tmp_path))


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="needs a folder that no one can write to, such as /proc")
def test_an_output_folder_that_cannot_be_written_is_named(treelm: Treelm, project: Path, stimuli: Path) -> None:
    outcome = treelm("parse", project / "run", stimuli, "--output", "/proc/out.ptb")
    assert_one_line(outcome.err, code=outcome.code, expected="/proc/")


def list_corpora(stdout: int | IO[str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "treelm", "data", "list"]
    return subprocess.run(command, stdout=stdout, stderr=subprocess.PIPE, text=True, check=False)


def test_a_reader_that_leaves_early_is_no_error() -> None:
    read, write = os.pipe()
    os.close(read)
    done = list_corpora(write)
    os.close(write)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_closed_output_is_told(project: Path) -> None:
    command = f'{sys.executable} -m treelm parse "{project}/run" - >&-'
    done = subprocess.run(command, shell=True, input="the dog .\n", capture_output=True, text=True, check=False)
    assert_one_line(done.stderr, code=done.returncode, expected="standard output is closed")


def test_words_with_quotation_marks_swallow_no_rows(treelm: Treelm, project: Path, tmp_path: Path) -> None:
    words = ['"', "the", '"quoted', 'inch"', "NA", "\u00a0", "'", "dog"]
    (tmp_path / "in.txt").write_text(" ".join(words) + "\n", encoding="utf-8")
    assert treelm("surprisal", project / "run", tmp_path / "in.txt", "--output", tmp_path / "out.tsv").code == 0
    with (tmp_path / "out.tsv").open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream, dialect="excel-tab"))  # the rules that R and pandas read by
    assert [row["word"] for row in rows] == words
