"""Start the processes of a node, watch them, and end with them: for where neither torchrun nor srun is used.

Torch's own launcher, as a library, would not keep what docs/exit-codes.md promises (docs/cluster.md says why), so this
does the little that is left: no rendezvous, no restarts. Also what a process does that has lost its launcher.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

from treelm.errors import InputError
from treelm.io.terminal import log
from treelm.io.watchdog import save_and_end_with
from treelm.io.workers import usable_cores
from treelm.training.signals import EXIT_INTERRUPTED, handling

EXIT_LOST, EXIT_AGAIN = 71, 75  # see outcomes.ProcessLost and outcomes.TrainingInterrupted
_COMMAND = ("-m", "treelm")
_LAUNCHER = "TREELM_LAUNCHER"  # its process
_TORCHRUN = "TORCHELASTIC_RUN_ID"
_PATIENCE = 10.0  # seconds that processes have to end by themselves when one of them has failed


def is_launched() -> bool:
    """Tell whether ``launch`` has started this process."""
    return _LAUNCHER in os.environ


def launch(arguments: Sequence[str], *, devices: int, nodes: int) -> int:
    """Run ``treelm`` with these arguments in ``devices`` processes, and return the exit code.

    Signals are passed on. When a process dies the others are ended, and one line says which it was. With several nodes
    this is done on each of them, with ``NODE_RANK``, ``MASTER_ADDR`` and ``MASTER_PORT`` in the environment; raises
    ``InputError`` without them.
    """
    with _meeting_point(nodes) as addresses:
        shared = {**os.environ, **_threads(devices), **addresses, _LAUNCHER: str(os.getpid())}
        children = [
            subprocess.Popen(
                [sys.executable, *_COMMAND, *arguments],
                env={**shared, "LOCAL_RANK": str(number)},
                start_new_session=True,  # an interrupt from the keyboard reaches them through this process, once
            )
            for number in range(devices)
        ]
        with _forwarding(children) as signals:
            codes = _watch(children)
    return _outcome(codes, signals)


def end_with_launcher() -> None:
    """Save and end when the ``launch`` or torchrun that started this process is gone, so that no process is left.

    Torchrun is gone before its workers when it gets a signal that it does not know, such as SIGUSR1.
    """
    if is_launched() or _TORCHRUN in os.environ:
        save_and_end_with(int(os.environ.get(_LAUNCHER, os.getppid())))


def _threads(devices: int) -> dict[str, str]:
    threads = str(max(1, usable_cores() // devices))
    return {} if "OMP_NUM_THREADS" in os.environ else {"OMP_NUM_THREADS": threads}


@contextmanager
def _meeting_point(nodes: int) -> Iterator[dict[str, str]]:
    """The variables by which processes find each other, with a port of this machine that Linux keeps for them."""
    names = ("NODE_RANK", "MASTER_ADDR", "MASTER_PORT")
    if nodes > 1:
        missing = [name for name in names if name not in os.environ]
        if missing:
            remedy = "set them on every node, or use torchrun or srun"
            raise InputError(f"{nodes} nodes without {', '.join(missing)} in the environment", remedy=remedy)
        yield {}
        return
    with socket.socket() as kept:
        # Linux gives a bound port to nobody but who asks for it by number and with this option, as torch does. Others
        # would not let those who are to meet there through to it.
        kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        kept.bind(("127.0.0.1", 0))
        port = kept.getsockname()[1]
        if sys.platform != "linux":
            kept.close()
        yield dict(zip(names, ("0", "127.0.0.1", str(port)), strict=True))


@contextmanager
def _forwarding(children: Sequence[subprocess.Popen[Any]]) -> Iterator[list[int]]:
    """Pass signals on to the children; gives the list of those that came."""
    came: list[int] = []

    def forward(number: int, frame: FrameType | None) -> None:
        came.append(number)
        for child in children:
            child.send_signal(number)

    with handling(forward):
        yield came


def _watch(children: Sequence[subprocess.Popen[Any]]) -> list[int]:
    """Wait for all, and return their codes; once one has failed, the others have ``_PATIENCE``.

    A process that is killed then counts as one that has lost the others, for it waits for them.
    """
    deadline = float("inf")
    ended: set[int] = set()
    while None in (codes := [child.poll() for child in children]):
        if any(codes):
            deadline = min(deadline, time.monotonic() + _PATIENCE)
        if time.monotonic() > deadline:
            for child, code in zip(children, codes, strict=True):
                if code is None:
                    ended.add(child.pid)
                    child.kill()
        time.sleep(0.05)
    return [EXIT_LOST if child.pid in ended and child.returncode else child.returncode for child in children]


def _outcome(codes: Sequence[int], signals: Sequence[int]) -> int:
    """The exit code of all, with a line where no process has said why.

    A process ends with 0 when the last checkpoint and model are written, so that one of them shows that the run is
    finished, wherever in their own end a signal has met the others.
    """
    at_once = [-number for number in signals]  # in the first moments of a process
    if all(code in (0, EXIT_LOST, EXIT_AGAIN, EXIT_INTERRUPTED, *at_once) for code in codes):
        if 0 in codes or EXIT_AGAIN in codes:  # a process ends with EXIT_AGAIN when the first one has saved
            return 0 if 0 in codes else EXIT_AGAIN
        if EXIT_INTERRUPTED in codes or -signal.SIGINT in codes:
            if codes[0] != EXIT_INTERRUPTED:  # else it has said so
                _say("another SIGINT has ended this at once")
            return EXIT_INTERRUPTED
        if signals:
            return EXIT_AGAIN
        _say("another process of the run has ended, or has not answered in time, so the run has stopped")
        return EXIT_LOST
    number, code = next((number, code) for number, code in enumerate(codes) if code not in (0, EXIT_LOST))
    if code > 0:  # it has said why
        return code
    _say(f"process {number + 1} of {len(codes)} was ended by {signal.Signals(-code).name}, so the run has stopped")
    return EXIT_LOST


def _say(what: str) -> None:
    log(f"treelm train: {what}; resume to continue from the last checkpoint")
