"""Several calls of ``treelm`` at a time, each in a process of its own that computes with one thread."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import ExitStack, contextmanager
from threading import RLock, Timer
from time import perf_counter
from types import MappingProxyType

from treelm.cli import EXIT_STOPPED, PARENT_VARIABLE
from treelm.cli.arguments import note


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
    training does after saving, and nothing more is begun; so does the end of a given number of ``seconds``, and that of
    this process, if it is killed. ``after`` names for some of them an earlier one without whose success they are not
    begun: they have its exit code.
    """
    processes = _Processes(after)
    with ExitStack() as at_end:
        at_end.enter_context(_on_signals(processes.stop))
        if seconds is not None:
            timer = Timer(seconds, processes.stop)
            timer.start()
            at_end.callback(timer.cancel)
        pool = at_end.enter_context(ThreadPoolExecutor(jobs))
        at_end.callback(processes.stop)  # the others, after an error; else there are none left
        codes = {name: pool.submit(processes.run, name, arguments) for name, arguments in commands.items()}
        for code in as_completed(codes.values()):
            code.result()  # raises what went wrong here, whatever is still running
        return {name: code.result() for name, code in codes.items()}


@contextmanager
def _on_signals(act: Callable[[], object]) -> Iterator[None]:
    """Act at each signal that asks for an end, while the block runs."""
    names = ("SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1")  # Windows lacks the last two
    numbers = [getattr(signal, name) for name in names if hasattr(signal, name)]
    before = {number: signal.signal(number, lambda *_: act()) for number in numbers}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


class _Processes:
    """The processes that run now, so that they can be asked to stop."""

    def __init__(self, after: Mapping[str, str]) -> None:
        """Begin without any."""
        self._after = after
        self._ended = {name: Future[int]() for name in after.values()}
        self._lock = RLock()  # a signal may come while the one before it is handled, in the same thread
        self._running: set[subprocess.Popen[str]] = set()
        self._stopping = False

    def run(self, name: str, arguments: Sequence[str]) -> int:
        """Run one to its end, unless a stop was asked for before it began, or what it comes after failed."""
        code = 1  # of what cannot be begun at all: what waits for it is to know
        try:
            waited = self._ended[self._after[name]].result() if name in self._after else 0
            code = waited or self._run(name, arguments)
        finally:
            if name in self._ended:
                self._ended[name].set_result(code)
        return code

    def _run(self, name: str, arguments: Sequence[str]) -> int:
        with self._lock:
            if self._stopping:
                return EXIT_STOPPED
            process = _begin(arguments)
            self._running.add(process)
        begin = perf_counter()
        assert process.stderr is not None
        with process:
            for line in process.stderr:
                note(f"[{name}] {line.rstrip()}")
        code = process.returncode
        with self._lock:
            self._running.discard(process)
        if self._stopping:
            return EXIT_STOPPED
        note(f"[{name}] {'done' if code == 0 else f'exit code {code}'} after {perf_counter() - begin:.0f} s")
        return code

    def stop(self) -> None:
        """Ask all to stop, and begin no more; a second call ends those that are still there."""
        with self._lock:
            send = subprocess.Popen.kill if self._stopping else subprocess.Popen.terminate
            self._stopping = True
            for process in self._running:
                send(process)


def _begin(arguments: Sequence[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
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
