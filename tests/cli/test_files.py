"""Progress of the subcommands, where standard error is no terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cli.conftest import TREES, Treelm
from tests.legacy.make import HERE
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


def test_a_bar_does_not_come_beside_what_is_written(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # a terminal, to rich
    with files.progress_bar("scoring", 2) as advance:
        advance()
    assert "scoring" in capsys.readouterr().err
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    with files.progress_bar("scoring", 2, shares_terminal=True) as advance:
        advance()
    assert "scoring" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "bars"),
    [
        (("structure", HERE / "prpn", "--data", "in.ptb"), {"prpn: parsing": 4, "comparing trees": 20}),
        (("audit", HERE / "ngram", "in.ptb"), {"ngram": 6}),
        (("audit", HERE / "prpn", "in.ptb", "--training-mode"), {"prpn": 2}),
        (("generate", HERE / "ngram", "--num-sentences", "2", "--output", "out.txt"), {"drawing": 2}),
        (("data", "prepare", "in.ptb", "--output", "prepared"), {"reading": 1}),
        (("data", "statistics", "in.ptb"), {"reading": 1}),
    ],
    ids=["structure", "audit", "audit of training", "generate", "data prepare", "data statistics"],
)
def test_what_takes_long_tells_how_far_it_is(
    treelm: Treelm,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str | Path, ...],
    bars: dict[str, int],
) -> None:
    """Each bar comes to its end: as often as there is something to count."""
    counts: dict[str, int] = {}

    @contextmanager
    def count(what: str, total: int | None, **_: object) -> Iterator[Callable[[], None]]:
        name = Path(what).name
        counts[name] = 0

        def advance() -> None:
            counts[name] += 1

        yield advance
        assert total is None or counts[name] == total

    monkeypatch.setattr(f"treelm.cli.{arguments[0]}.progress_bar", count)
    monkeypatch.setenv("TREELM_CACHE", str(tmp_path / "cache"))  # what is prepared there already is not read again
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in.ptb").write_text(TREES)
    outcome = treelm(*arguments)
    assert outcome.code in (0, 1), outcome.err  # 1: what an audit has found
    assert counts == bars
