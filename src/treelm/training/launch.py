"""Starts the processes of a node, watches them, and ends with them: for where neither torchrun nor srun is used."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

from treelm.errors import InputError

EXIT_LOST, EXIT_AGAIN = 71, 75  # see outcomes.ProcessLost and outcomes.TrainingInterrupted
_COMMAND = ("-m", "treelm")
_PIPE = "TREELM_LAUNCHER_PIPE"
_PATIENCE = 10.0  # seconds that processes have to end by themselves when one of them has failed
_FORWARDED = ("SIGINT", "SIGTERM", "SIGUSR1")


def is_launched() -> bool:
    """Whether ``launch`` has started this process."""
    return _PIPE in os.environ


def launch(arguments: Sequence[str], *, devices: int, nodes: int) -> int:
    """Run ``treelm`` with these arguments in ``devices`` processes, and return the exit code.

    Signals are passed on. When a process dies the others are ended, and one line says which it was. With several nodes
    this is done on each of them, with ``NODE_RANK``, ``MASTER_ADDR`` and ``MASTER_PORT`` in the environment; raises
    ``InputError`` without them.
    """
    read, write = os.pipe()  # a process reads its end when this one is gone, however it went
    try:
        environment = _environment(devices, nodes) | {_PIPE: str(read)}
        children = [
            subprocess.Popen(
                [sys.executable, *_COMMAND, *arguments],
                env={**os.environ, **environment, "LOCAL_RANK": str(number)},
                pass_fds=(read,),
                start_new_session=True,  # an interrupt from the keyboard reaches them through this process, once
            )
            for number in range(devices)
        ]
        with _forwarding(children) as signals:
            _watch(children)
    finally:
        os.close(read)
        os.close(write)
    return _outcome(children, signals)


def end_with_launcher() -> None:
    """In a launched process: end when the launcher is gone, so that no process is left behind."""
    if not is_launched():
        return
    pipe = int(os.environ[_PIPE])

    def wait() -> None:
        os.read(pipe, 1)
        os._exit(EXIT_LOST)

    threading.Thread(target=wait, daemon=True).start()


def _environment(devices: int, nodes: int) -> dict[str, str]:
    threads = str(max(1, len(os.sched_getaffinity(0)) // devices))
    shared = {} if "OMP_NUM_THREADS" in os.environ else {"OMP_NUM_THREADS": threads}
    if nodes == 1:
        return {**shared, "NODE_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(_free_port())}
    missing = [name for name in ("NODE_RANK", "MASTER_ADDR", "MASTER_PORT") if name not in os.environ]
    if missing:
        remedy = "set them on every node, or use torchrun or srun"
        raise InputError(f"{nodes} nodes without {', '.join(missing)} in the environment", remedy=remedy)
    return shared


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def _forwarding(children: Sequence[subprocess.Popen[Any]]) -> Iterator[list[int]]:
    """Pass signals on to the children; gives the list of those that came."""
    came: list[int] = []

    def forward(number: int, frame: FrameType | None) -> None:
        came.append(number)
        for child in children:
            child.send_signal(number)

    numbers = [getattr(signal, name) for name in _FORWARDED if hasattr(signal, name)]
    before = {number: signal.signal(number, forward) for number in numbers}
    try:
        yield came
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _watch(children: Sequence[subprocess.Popen[Any]]) -> None:
    """Wait for all; once one has failed, the others have ``_PATIENCE``."""
    deadline = float("inf")
    while any(child.poll() is None for child in children):
        if any(child.returncode for child in children):
            deadline = min(deadline, time.monotonic() + _PATIENCE)
        if time.monotonic() > deadline:
            for child in children:
                child.kill()
        time.sleep(0.05)


def _outcome(children: Sequence[subprocess.Popen[Any]], signals: Sequence[int]) -> int:
    codes = [child.returncode for child in children]
    if signals and all(code == EXIT_AGAIN or -code in signals for code in codes):
        return EXIT_AGAIN
    failed = [(number, code) for number, code in enumerate(codes) if code not in (0, EXIT_LOST)]
    if not failed:
        return EXIT_LOST if any(codes) else 0
    number, code = failed[0]
    if code > 0:  # it has said why
        return code
    name = signal.Signals(-code).name
    print(
        f"treelm train: process {number + 1} of {len(codes)} was ended by {name}, so the run has stopped; "
        "resume to continue from the last checkpoint",
        file=sys.stderr,
    )
    return EXIT_LOST
