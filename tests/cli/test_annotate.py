"""Silver trees by one of our own runs, offline: killed, gone on with, and trained on."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cli.conftest import Treelm
from tests.programs import environment
from treelm.inference.annotation import BLOCK, JOURNAL

NUM_LINES = 450
NARROW = ("--action-beam", "6", "--word-beam", "2")


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("text") / "in.txt"
    source = random.Random(1)
    nouns = ["the dog", "a cat", "the cat", "a dog"]
    lines = (
        f"{source.choice(nouns)} {source.choice(['sees ' + one for one in nouns] + ['barks', 'sleeps'])} {number} .\n"
        for number in range(NUM_LINES)  # all differ: the same words would be parsed once
    )
    path.write_text("".join(lines))
    return path


def annotation(text: Path, project: Path, out: Path, *options: str) -> list[str]:
    arguments = ["data", "annotate", text, "--parser", project / "run", "--output", out, *NARROW, *options]
    return [str(argument) for argument in arguments]


def num_read(journal: Path) -> int:
    lines = journal.read_bytes().split(b"\n")[:-1] if journal.exists() else []  # the last may be half written
    return json.loads(lines[-1])["progress"]["num_read"] if lines else 0


def start_and_kill(arguments: list[str], progress: Path, *, after_blocks: int) -> None:
    """Kill it with its work half done: nothing can be tidied up."""
    command = [sys.executable, "-m", "treelm", *arguments]
    with subprocess.Popen(command, env=environment(), stderr=subprocess.PIPE) as process:
        try:
            deadline = time.monotonic() + 200
            while num_read(progress) < after_blocks * BLOCK:
                assert process.poll() is None, process.stderr and process.stderr.read()
                assert time.monotonic() < deadline
                time.sleep(0.005)
        finally:
            process.kill()
        process.communicate()
    assert process.returncode == -signal.SIGKILL


def test_killed_twice_it_ends_with_the_same_bytes(project: Path, text: Path, tmp_path: Path, treelm: Treelm) -> None:
    whole, out = tmp_path / "whole.ptb", tmp_path / "out.ptb"
    assert treelm(*annotation(text, project, whole)).code == 0
    progress = tmp_path / "out.ptb.annotating" / JOURNAL
    start_and_kill(annotation(text, project, out), progress, after_blocks=2)
    start_and_kill(annotation(text, project, out, "--processes", "2"), progress, after_blocks=4)
    assert not out.exists()
    assert 0 < num_read(progress) < NUM_LINES
    outcome = treelm(*annotation(text, project, out))
    assert outcome.code == 0, outcome.err
    assert f"{NUM_LINES:,} trees" in outcome.err
    assert out.read_bytes() == whole.read_bytes()
    (tmp_path / "first.txt").write_text("".join(text.read_text().splitlines(keepends=True)[:30]))
    assert out.read_text().startswith(treelm("parse", project / "run", tmp_path / "first.txt", *NARROW).out)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "first.txt",
        "out.ptb",
        "out.ptb.json",
        "whole.ptb",
        "whole.ptb.json",
    ]


def test_what_could_not_be_parsed_is_named_and_exit_code_3(project: Path, tmp_path: Path, treelm: Treelm) -> None:
    (tmp_path / "in.txt").write_text("the dog barks .\nthe dog sees the cat .\n")
    options = ["--max-words", "5", "--on-error", "flat"]
    outcome = treelm(*annotation(tmp_path / "in.txt", project, tmp_path / "out.ptb", *options))
    assert outcome.code == 3
    assert f"not parsed: {tmp_path}/in.txt:2: 6 words" in outcome.err
    assert (tmp_path / "out.ptb").read_text().splitlines()[1].startswith("(UNPARSED (X the)")
