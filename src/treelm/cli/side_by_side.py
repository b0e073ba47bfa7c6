"""Several calls of ``treelm`` at a time, each in a process of its own that computes with one thread."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from threading import Event
from types import MappingProxyType

from treelm.cli import EXIT_STOPPED, PARENT_VARIABLE
from treelm.io.terminal import log

ENVIRONMENT = {"OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}  # small models gain little from more threads


def run_side_by_side(
    commands: Mapping[str, Sequence[str]],
    *,
    jobs: int,
    seconds: float | None = None,
    after: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, int]:
    """Run ``treelm`` once for each name, with its arguments, ``jobs`` at a time; returns the exit codes by name.

    Calls begin in the order given. Lines on their standard error are printed on ours behind the name; their standard
    output is dropped. An interrupt (Ctrl-C, SIGTERM), and the end of the given number of ``seconds``, ask all of them
    to stop, which training does after saving, and no further call begins; another interrupt kills them. They also end
    if this process is killed. ``after`` maps the name of a call to that of another one which must succeed before it
    begins; if the other fails, the call has its exit code.
    """
    is_over, running, codes = Event(), set[subprocess.Popen[str]](), dict[str, Future[int]]()

    def call(name: str) -> int:
        if name in after and (code := codes[after[name]].result()):
            return code
        if is_over.is_set():
            return EXIT_STOPPED
        begin = time.perf_counter()
        with _started(commands[name]) as process:
            running.add(process)
            if is_over.is_set():  # since it was begun
                process.terminate()
            for line in process.stderr or ():
                log(f"[{name}] {line.rstrip()}")
        running.discard(process)
        if is_over.is_set():
            return EXIT_STOPPED
        how = "done" if process.returncode == 0 else f"exit code {process.returncode}"
        log(f"[{name}] {how} after {time.perf_counter() - begin:.0f} s")
        return process.returncode

    with ThreadPoolExecutor(jobs) as pool:
        try:
            for name in sorted(commands, key=lambda name: name in after):
                codes[name] = pool.submit(call, name)
            wait(codes.values(), timeout=seconds, return_when=FIRST_EXCEPTION)
        except KeyboardInterrupt:
            pass
        finally:
            is_over.set()
            for process in list(running):
                process.terminate()
            try:
                wait(codes.values())
            except KeyboardInterrupt:
                for process in list(running):
                    process.kill()
    return {name: codes[name].result() if name in codes else EXIT_STOPPED for name in commands}


def _started(arguments: Sequence[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "treelm", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env={**os.environ, **ENVIRONMENT, PARENT_VARIABLE: str(os.getpid())},
        start_new_session=True,  # Ctrl-C reaches it through us alone, once
        text=True,
        encoding="utf-8",
        errors="replace",
    )
