"""Progress of the subcommands, where standard error is no terminal."""

from __future__ import annotations

import pytest

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
