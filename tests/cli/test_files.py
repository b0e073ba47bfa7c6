"""Progress of the subcommands, where standard error is no terminal."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import Queue

import pytest

from tests.cli.conftest import TREES, Treelm
from tests.legacy.make import HERE
from treelm.cli import main
from treelm.io.terminal import doing, show_progress, told


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> Iterator[Queue[str]]:
    """What is told of what goes on, with hardly any patience."""
    found = Queue[str]()
    monkeypatch.setattr("treelm.io.terminal.SECONDS_TO_FIRST_NOTE", 0.01)
    monkeypatch.setattr("treelm.io.terminal.SECONDS_BETWEEN_NOTES", 0.02)
    monkeypatch.setattr("treelm.io.terminal.log", found.put)
    with told():
        yield found


def test_what_goes_on_is_told_and_how_far_it_is(lines: Queue[str]) -> None:
    with doing("loading lstm"):
        assert lines.get() == "loading lstm ..."
        assert re.fullmatch(r"loading lstm \.\.\. \d+ s", lines.get())
    with show_progress("scoring", 2) as advance:
        assert lines.get() == "scoring: 0 of 2 sentences ..."
        advance()
        while not (said := lines.get()).startswith("scoring: 1 of 2 sentences ... "):
            assert said.startswith("scoring: 0 of 2 sentences ... ")


@pytest.mark.parametrize("arguments", [["models"], ["train", "demo", "--output", "run"]], ids=" ".join)
def test_every_subcommand_says_what_it_does(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is slow: here it is the module of the subcommand, before anything else is imported."""
    said = Queue[str]()
    monkeypatch.setattr("treelm.io.terminal.SECONDS_TO_FIRST_NOTE", 0.01)
    monkeypatch.setattr("treelm.io.terminal.log", said.put)
    monkeypatch.setattr("treelm.cli.import_module", lambda _: said.put(said.get()) or sys.exit(7))
    monkeypatch.setattr(sys, "argv", ["treelm", *arguments])
    monkeypatch.setattr("treelm.cli._unwind_on_signals", lambda: None)
    monkeypatch.setattr("treelm.cli._signals", lambda: ())
    with pytest.raises(SystemExit, match="7"):
        main()
    assert said.get() == f"treelm {arguments[0]} is working ..."


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
