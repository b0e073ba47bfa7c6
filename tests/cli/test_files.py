"""Progress of the subcommands, where standard error is no terminal."""

from __future__ import annotations

import sys
import time

import pytest

from treelm.cli import files
from treelm.cli.compare import show_progress


def test_progress_is_told_once_each_time_and_at_the_end(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("treelm.cli.files.SECONDS_BETWEEN_NOTES", 0.0)
    with show_progress("scoring", 2) as advance:
        advance()
        advance()
    *lines, last = capsys.readouterr().err.splitlines()
    assert lines == ["scoring: 1 of 2 sentences", "scoring: 2 of 2 sentences"]
    assert last.startswith("scoring: done in ")


def test_a_bar_comes_with_the_second_second_and_not_beside_what_is_written(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # a terminal, to rich
    monkeypatch.setattr(files, "SECONDS_BEFORE_BAR", 60.0)
    with files.progress_bar("scoring", 2) as advance:
        advance()
    assert capsys.readouterr().err.strip() == ""
    monkeypatch.setattr(files, "SECONDS_BEFORE_BAR", 0.0)
    with files.progress_bar("scoring", 2) as advance:
        advance()
        time.sleep(0.3)
    assert "scoring" in capsys.readouterr().err
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    with files.progress_bar("scoring", 2, shares_terminal=True) as advance:
        advance()
        time.sleep(0.3)
    assert "scoring" not in capsys.readouterr().err
