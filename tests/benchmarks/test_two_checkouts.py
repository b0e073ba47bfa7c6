"""Work of two checkouts in turns."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import two_checkouts
from two_checkouts import Arguments, main


def test_both_take_turns_and_ratios_are_of_pairs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = []

    def seconds(python: str, _: str) -> float:
        asked.append(python)
        return {"before": 3.0, "after": 2.0}[python]

    monkeypatch.setattr(two_checkouts, "_seconds", seconds)
    main(Arguments(before="before", after="after", rounds=2))
    found: list[dict[str, Any]] = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [one["work"] for one in found] == list(two_checkouts.WORK)
    assert {one["ratio"] for one in found} == {1.5}
    assert asked[:4] == ["before", "after", "before", "after"]


def test_a_program_counts_from_its_begin() -> None:
    program = "sum(range(3_000_000))\nbegin = time.process_time()\nsum(range(300_000))\n"
    assert two_checkouts._seconds(sys.executable, program) > 0
    for one in two_checkouts.WORK.values():
        compile(one, "work", "exec")
        assert one.count("begin = time.process_time()") == 1
