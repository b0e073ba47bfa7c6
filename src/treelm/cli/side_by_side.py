"""Several calls of ``treelm`` at a time, each in a process of its own that computes with one thread."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import Thread
from types import MappingProxyType

from treelm.cli import EXIT_STOPPED, PARENT_VARIABLE
from treelm.cli.arguments import note

_BETWEEN_LOOKS = 0.05  # seconds


def run_side_by_side(
    commands: Mapping[str, Sequence[str]],
    *,
    jobs: int,
    seconds: float | None = None,
    after: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, int]:
    """Run ``treelm`` with each name's arguments, ``jobs`` at a time, begun in order; exit codes by name.

    Each process computes with one thread: small models gain little from more. Lines on their standard error are
    printed on ours behind the name; their standard output is dropped. Ctrl-C and SIGTERM ask all of them to stop, which
    training does after saving, and nothing more is begun; a second one kills them. So does the end of a given number of
    ``seconds``, and that of this process, if it is killed. ``after`` names for some of them an earlier one without
    whose success they are not begun: they have its exit code.
    """
    end = float("inf") if seconds is None else time.monotonic() + seconds
    waiting, running, codes = dict(commands), dict[str, _Process](), dict[str, int]()
    num_told = 0
    with _requests_to_stop() as num_asked:
        try:
            while waiting or running:
                num_wanted = num_asked() + (time.monotonic() > end)
                for process in running.values() if num_wanted > num_told else ():
                    (process.kill if num_told else process.terminate)()
                num_told = num_wanted
                for name, process in list(running.items()):
                    if process.poll() is not None:
                        codes[name] = running.pop(name).end(is_stopped=num_told > 0)
                for name, arguments in list(waiting.items()):
                    first = after.get(name)
                    if num_told:
                        codes[name] = EXIT_STOPPED
                    elif first is not None and codes.get(first, 0):
                        codes[name] = codes[first]
                    elif len(running) < jobs and (first is None or first in codes):
                        running[name] = _Process(name, arguments)
                    else:
                        continue
                    del waiting[name]
                time.sleep(_BETWEEN_LOOKS)
        finally:  # after an error; else there are none left
            for process in running.values():
                process.terminate()
                process.end(is_stopped=True)
    return {name: codes[name] for name in commands}


@contextmanager
def _requests_to_stop() -> Iterator[Callable[[], int]]:
    """Count signals that ask for an end, while the block runs."""
    names = ("SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1")  # Windows lacks the last two
    asked: list[int] = []
    before = {
        number: signal.signal(number, lambda number, _: asked.append(number))
        for number in (getattr(signal, name) for name in names if hasattr(signal, name))
    }
    try:
        yield asked.__len__
    finally:
        for number, old in before.items():
            signal.signal(number, old)


class _Process(subprocess.Popen[str]):
    """A call of ``treelm``, whose notes are ours."""

    def __init__(self, name: str, arguments: Sequence[str]) -> None:
        """Begin."""
        super().__init__(
            [sys.executable, "-m", "treelm", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1", PARENT_VARIABLE: str(os.getpid())},
            start_new_session=True,  # Ctrl-C reaches it through us alone, once
            text=True,
            encoding="utf-8",
            errors="replace",
        )
        self._name, self._begin = name, time.perf_counter()
        self._notes = Thread(target=self._pass_on, daemon=True)
        self._notes.start()

    def _pass_on(self) -> None:
        assert self.stderr is not None
        with self.stderr:
            for line in self.stderr:
                note(f"[{self._name}] {line.rstrip()}")

    def end(self, *, is_stopped: bool) -> int:
        """Say how it ended; the exit code."""
        self._notes.join()
        self.wait()
        if is_stopped:
            return EXIT_STOPPED
        how = "done" if self.returncode == 0 else f"exit code {self.returncode}"
        note(f"[{self._name}] {how} after {time.perf_counter() - self._begin:.0f} s")
        return self.returncode
