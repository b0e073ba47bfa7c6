"""Progress of the subcommands, where standard error is no terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cli.conftest import TREES, Treelm
from tests.legacy.make import HERE
from treelm.io.terminal import doing, progress_bar, show_progress


def test_where_no_terminal_is_a_line_now_and_then_tells_how_far_it_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("treelm.io.terminal.SECONDS_BETWEEN_NOTES", 0.0)
    with doing("loading lstm"), show_progress("scoring", 2) as advance:
        advance()
    monkeypatch.setattr("treelm.io.terminal.SECONDS_BETWEEN_NOTES", 60.0)
    with progress_bar("parsing", None) as advance:
        advance()
    assert capsys.readouterr().err == "scoring: 1 of 2 sentences\nscoring: done in 0 s\n"


@pytest.mark.parametrize(
    ("arguments", "bars"),
    [
        (("structure", HERE / "prpn", "--data", "in.ptb"), {"prpn: parsing": 4, "comparing trees": 20}),
        (("audit", HERE / "ngram", "in.ptb"), {"ngram": 6}),
        (("data", "statistics", "in.ptb"), {"reading": 1}),
    ],
    ids=["structure", "audit", "data statistics"],
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
