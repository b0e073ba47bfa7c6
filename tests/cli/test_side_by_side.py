"""Calls of ``treelm`` in processes of their own, which end with the one that began them."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.programs import environment
from treelm.cli import EXIT_STOPPED, side_by_side
from treelm.cli.side_by_side import run_side_by_side

pytestmark = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")


def test_what_waits_for_a_run_that_fails_is_not_begun() -> None:
    commands = {"second": ["--version"], "first": ["no-such-subcommand"], "third": ["--version"]}
    codes = run_side_by_side(commands, jobs=2, after={"second": "first"})
    assert list(codes.items()) == [("second", 2), ("first", 2), ("third", 0)]


def test_what_runs_leaves_nothing_when_the_process_that_began_it_is_killed(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    command = ["data", "prepare", "pipe", "--format", "brackets", "--output", "prepared"]
    program = f"from treelm.cli.side_by_side import run_side_by_side; run_side_by_side({{'one': {command}}}, jobs=1)"
    with subprocess.Popen([sys.executable, "-c", program], cwd=tmp_path, env=environment()) as process:
        try:
            with (tmp_path / "pipe").open("wb"):  # which waits until it is read
                assert list(tmp_path.glob(".prepared.*"))
                process.kill()
                while list(tmp_path.glob(".prepared.*")):  # the test's time limit is the assertion
                    time.sleep(0.02)
        finally:
            process.kill()
    assert not (tmp_path / "prepared").exists()


def test_the_end_of_the_time_and_an_error_stop_what_runs_and_begin_nothing_more(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """One waits for a pipe without end: the test's time limit is the assertion."""
    os.mkfifo(tmp_path / "pipe")
    endless = ["data", "statistics", str(tmp_path / "pipe"), "--format", "text"]
    commands = {"endless": endless, "waits": ["--version"]}
    assert run_side_by_side(commands, jobs=1, seconds=0.1) == dict.fromkeys(commands, EXIT_STOPPED)
    started = side_by_side._started

    def fail(arguments: Sequence[str]) -> subprocess.Popen[str]:
        if arguments == ["fails"]:
            raise OSError("no process")
        return started(arguments)

    monkeypatch.setattr(side_by_side, "_started", fail)
    with pytest.raises(OSError, match="no process"):
        run_side_by_side({"endless": endless, "fails": ["fails"], "waits": []}, jobs=2, seconds=120)
