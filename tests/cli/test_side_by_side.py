"""Calls of ``treelm`` in processes of their own, which end with the one that began them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from treelm.cli import EXIT_STOPPED, side_by_side
from treelm.cli.side_by_side import run_side_by_side

SRC = Path(__file__).parents[2] / "src"


def test_what_waits_for_a_run_that_fails_is_not_begun() -> None:
    commands = {"first": ["no-such-subcommand"], "second": ["--version"], "third": ["--version"]}
    codes = run_side_by_side(commands, jobs=2, after={"second": "first"})
    assert codes == {"first": 2, "second": 2, "third": 0}


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_what_runs_leaves_nothing_when_the_process_that_began_it_is_killed(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    command = ["data", "prepare", "pipe", "--format", "brackets", "--output", "prepared"]
    program = f"from treelm.cli.side_by_side import run_side_by_side; run_side_by_side({{'one': {command}}}, jobs=1)"
    environment = {**os.environ, "PYTHONPATH": str(SRC)}
    with subprocess.Popen([sys.executable, "-c", program], cwd=tmp_path, env=environment) as process:
        try:
            with (tmp_path / "pipe").open("wb"):  # which waits until it is read
                assert list(tmp_path.glob(".prepared.*"))
                process.kill()
                while list(tmp_path.glob(".prepared.*")):  # the test's time limit is the assertion
                    time.sleep(0.02)
        finally:
            process.kill()
    assert not (tmp_path / "prepared").exists()


def test_an_error_waits_neither_for_the_others_nor_for_the_end_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    class Process(side_by_side._Process):
        def __init__(self, name: str, arguments: Sequence[str]) -> None:
            if name == "fails":
                raise OSError("no process")
            super().__init__(name, ["explore", "--port", "0"] if name == "runs" else arguments)

    monkeypatch.setattr(side_by_side, "_Process", Process)
    with pytest.raises(OSError, match="no process"):
        run_side_by_side({"runs": [], "fails": [], "waits": []}, jobs=2, seconds=120)


def test_a_second_request_to_stop_kills(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The first is ignored by a process that waits for a pipe; the time limit is the assertion."""
    if not hasattr(os, "mkfifo"):
        pytest.skip("needs named pipes")

    class Process(side_by_side._Process):
        def terminate(self) -> None:
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(side_by_side, "_Process", Process)
    os.mkfifo(tmp_path / "pipe")
    command = ["data", "stats", str(tmp_path / "pipe"), "--format", "text"]
    assert run_side_by_side({"one": command}, jobs=1, seconds=0.1) == {"one": EXIT_STOPPED}
