"""Several processes give the bytes of one; one that dies is one line."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tests.cli.conftest import Treelm
from treelm.inference.batching import Sentences
from treelm.models.base import LanguageModel
from treelm.models.scores import ParsedSentence

WORDS = ["the", "dog", "cat", "sees", "barks", "a", "."]


@pytest.fixture
def text(tmp_path: Path) -> Path:
    lines = [" ".join(WORDS[(i * 3 + j) % 7] for j in range(1 + i % 5)) for i in range(40)]
    lines[7] = ""
    path = tmp_path / "in.txt"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


@pytest.fixture
def two_threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(1)


@pytest.mark.parametrize(
    ("command", "options"),
    [
        ("surprisal", ("--batch-size", "3", "--end", "--columns", "entropy_bits")),
        ("evaluate", ("--json",)),
    ],
)
def test_results_do_not_depend_on_the_number_of_processes(
    project: Path, treelm: Treelm, text: Path, command: str, options: tuple[str, ...], two_threads: None
) -> None:
    """One process on two threads, against two with a thread each."""
    files = () if command == "evaluate" else (text,)
    one, two = (treelm(command, project / "run", *files, *options, "--processes", number) for number in ("1", "2"))
    assert one.code == 0
    assert two == one


def die(lm: LanguageModel, sentences: Sentences) -> list[ParsedSentence | None]:
    os.kill(os.getpid(), signal.SIGKILL)
    return []


def test_a_process_that_dies_each_time_is_one_line(
    project: Path, treelm: Treelm, text: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text.write_text("the dog barks .\n")  # one task: only one worker loads torch
    monkeypatch.setattr("treelm.inference.batching.annotate", die)
    outcome = treelm("parse", project / "run", text, "--processes", "2")
    assert outcome.code == 2
    assert outcome.err == (
        "treelm parse: a process that computes was killed; free memory, or lower the number of processes\n"
    )
