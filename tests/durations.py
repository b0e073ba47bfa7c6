"""Which tests are slow: ``slow.txt`` lists them, written from what they took (``make durations``).

A line is a test, without parameters, or a module: one whose tests share something that is slow to set up, which the
next of them would pay for if the first were left out.
"""

from __future__ import annotations

from pathlib import Path

import pytest

LIST = Path(__file__).parent / "slow.txt"
LONGEST = 0.2
"""Seconds, on two idle cores, of the slowest case of a test that is not slow."""


LONGEST_SETUP = 2.0


def names_of(case: str) -> tuple[str, str]:
    """The module of a case, and its test."""
    return case.split("::")[0], case.split("[")[0]


def read_slow() -> frozenset[str]:
    """The tests that were slow when they were measured."""
    return frozenset(LIST.read_text(encoding="utf-8").splitlines())


class Recorder:
    """Adds up what every case takes, and writes the slow ones down after a whole run."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}
        self._slow: set[str] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        module, test = names_of(report.nodeid)
        self._seconds[report.nodeid] = self._seconds.get(report.nodeid, 0.0) + report.duration
        if self._seconds[report.nodeid] > LONGEST:
            self._slow.add(test)
        if report.when == "setup" and report.duration > LONGEST_SETUP:
            self._slow.add(module)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if not hasattr(session.config, "workerinput"):  # a process of pytest-xdist; the first one hears of all
            LIST.write_text("".join(f"{name}\n" for name in sorted(self._slow)), encoding="utf-8")
