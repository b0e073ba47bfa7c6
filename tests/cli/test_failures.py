"""A fault of our own: one line, exit code 70, and a file with the traceback that holds nothing private."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TextIO

import pytest

from tests.cli.conftest import Treelm
from treelm import failures
from treelm.cli import run as run_treelm
from treelm.errors import InputError, is_out_of_memory
from treelm.inference.batching import Sentences
from treelm.models.base import LanguageModel
from treelm.models.scores import SentenceScore

SRC = Path(__file__).parents[2] / "src"

SECRET = "a-private-word"


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(failures.VARIABLE, raising=False)


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> None:
    """A subcommand with a bug."""

    def fail(options: object) -> int:
        value = SECRET
        raise KeyError(f"{len(value)}\nlines")

    monkeypatch.setattr("treelm.cli.parse.main", fail)


def kept(folder: Path) -> list[Path]:
    return sorted(folder.glob("treelm-failure-*.txt"))


@pytest.mark.usefixtures("broken")
def test_a_bug_is_one_line_code_70_and_a_file(treelm: Treelm, tmp_path: Path) -> None:
    outcome = treelm("parse", SECRET, "--word-beam=7", f"--output={SECRET}")
    assert outcome.code == failures.EXIT_FAILED == 70
    assert outcome.err.count("\n") == 1
    assert "Traceback" not in outcome.err
    (path,) = kept(tmp_path)
    assert f"please send {path.name}" in outcome.err
    text = path.read_text()
    assert "treelm parse --word-beam --output" in text
    assert "in fail" in text
    assert re.search(r"KeyError: .14\\nlines.", text)
    assert "no values of variables" in text


@pytest.mark.usefixtures("broken")
def test_the_file_holds_no_values_no_arguments_and_no_home(
    treelm: Treelm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(Path(__file__).parents[1]))
    treelm("parse", SECRET, f"--output={SECRET}")
    text = kept(tmp_path)[0].read_text()
    assert SECRET not in text
    assert str(Path(__file__).parents[1]) not in text
    assert 'File "~/cli/test_failures.py"' in text


def divide(lm: LanguageModel, sentences: Sentences, **options: object) -> list[SentenceScore]:
    return [sentences[1 // 0]]  # type: ignore[list-item]


def test_a_bug_in_another_process_is_told_with_its_own_traceback(
    treelm: Treelm, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "in.txt").write_text("the dog barks .\n")  # one task: only one worker loads torch
    monkeypatch.setattr("treelm.inference.surprisal.score_with_measures", divide)
    options = ("--columns", "next_entropy_bits", "--processes", "2")
    outcome = treelm("surprisal", project / "run", tmp_path / "in.txt", *options)
    assert (outcome.code, outcome.err.count("\n")) == (70, 1)
    assert "ZeroDivisionError: integer division or modulo by zero" in outcome.err
    (path,) = kept(tmp_path)
    assert "in divide" in path.read_text()


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 4 bytes"),
        RuntimeError("unable to mmap 4 bytes from file </x>: Cannot allocate memory (12)"),
    ],
)
def test_want_of_memory_is_bad_luck_and_no_fault(
    treelm: Treelm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fail(options: object) -> int:
        raise error

    monkeypatch.setattr("treelm.cli.parse.main", fail)
    outcome = treelm("parse", "x")
    assert (outcome.code, outcome.err.count("\n")) == (2, 1)
    assert "treelm parse: out of memory; " in outcome.err
    assert not kept(tmp_path)
    assert is_out_of_memory(error)
    assert not is_out_of_memory(InputError(str(error), remedy=""))
    assert not is_out_of_memory(FileNotFoundError(2, "No such file or directory", f"runs/{error}"))


def test_an_interrupt_is_no_fault_and_a_panic_of_a_library_is_one(
    treelm: Treelm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Panic(BaseException):
        pass

    for error, code in ((KeyboardInterrupt(), 130), (Panic("null"), 70)):

        def fail(options: object, error: BaseException = error) -> int:
            raise error

        monkeypatch.setattr("treelm.cli.parse.main", fail)
        assert treelm("parse", "x").code == code
    assert len(kept(tmp_path)) == 1


def test_a_loss_that_is_no_number_ends_without_the_advice_to_resume(
    treelm: Treelm, project: Path, tmp_path: Path
) -> None:
    recipe, run = project / "recipe.toml", tmp_path / "run"
    outcome = treelm("train", recipe, "--output", run, "--set", "training.learning_rate=1e30", "training.epochs=9")
    assert outcome.code == 65
    assert "start again with a lower learning_rate" in outcome.err
    assert "to continue" not in outcome.err


@pytest.mark.parametrize(
    "call", [("--help",), ("train", "--help"), ("evaluate", "run"), ("data", "statistics", "train.ptb")], ids=" ".join
)
def test_output_that_nobody_reads_to_its_end_is_no_failure(
    call: tuple[str, ...], project: Path, closed_pipe: TextIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project)
    monkeypatch.setattr(sys, "stdout", closed_pipe)
    assert run_treelm(list(call)) == 0


@pytest.mark.parametrize(
    "script", ['exec "$@"', 'exec "$@" 2>&-', 'exec "$@" 2>/dev/full'], ids=["reader gone", "closed", "full disk"]
)
def test_an_exit_code_says_nothing_of_who_reads_messages(script: str, closed_pipe: TextIO) -> None:
    """A real program: Python itself ends with another code if it cannot write out what it holds."""
    environment = {**os.environ, "PYTHONPATH": str(SRC), "PYTHONUNBUFFERED": ""}
    command = ["sh", "-c", script, "sh", sys.executable, "-m", "treelm", "surprisl"]
    ended = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=closed_pipe, check=False)
    assert (ended.returncode, ended.stdout) == (2, b"")
