"""Signals at named points of a training process, so that no test waits for a moment that may not come.

``TREELM_TEST_POINT=POINT:SIGNAL:WHO`` in the environment: the process of that rank, ``all``, or the ``launcher``, at
that point, sends the signal to whoever has started it (``--devices``), or else to itself. ``POINT`` is a step's number,
``exit``, or one of ``POINTS``; ``SIGNAL+SIGNAL`` are two, the second of which must end the process.
``python -m tests.training.points ...`` is ``treelm ...`` that does so.
"""

from __future__ import annotations

import atexit
import os
import select
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any

from treelm.training import checkpoints, run, session
from treelm.training.launch import is_launched

VARIABLE = "TREELM_TEST_POINT"
POINTS: dict[str, tuple[Any, str]] = {
    "preparing": (run, "set_up"),
    "last model": (session, "save_model"),
    "last checkpoint": (checkpoints.Checkpoints, "save"),
    "loading": (run, "load_model"),
}
"""What is about to be called there. ``exit`` is the end of the interpreter."""


def install(arguments: Sequence[str]) -> None:
    """Do in this process, which has these arguments, what the environment asks for."""
    if VARIABLE not in os.environ:
        return
    point, name, who = os.environ[VARIABLE].split(":")
    numbers = [signal.Signals[one] for one in name.split("+")]
    if who not in ("all", own_name(arguments)):
        return
    if point == "exit":
        atexit.register(deliver, numbers)
    elif point.isdigit():
        before_call(session.Session, "update", lambda self, *rest: self.state.step + 1 == int(point), numbers)
    else:
        place, function = POINTS[point]
        is_last = {"last checkpoint": lambda self, step, checkpoint: step == last_step(checkpoint)}
        before_call(place, function, is_last.get(point, lambda *arguments: True), numbers)


def is_at_exit(arguments: Sequence[str]) -> bool:
    """Whether a signal waits for the end of this process' interpreter."""
    point, _, who = os.environ.get(VARIABLE, "::").split(":")
    return point == "exit" and who == own_name(arguments)


def last_step(checkpoint: checkpoints.Checkpoint) -> int:
    return int(checkpoint.values["training"]["max_steps"])


def own_name(arguments: Sequence[str]) -> str:
    """Rank of this process, whoever has started it."""
    if "--devices" in arguments and not is_launched():
        return "launcher"
    ranks = (os.environ.get(name) for name in ("RANK", "SLURM_PROCID", "LOCAL_RANK"))
    return next((rank for rank in ranks if rank), "0")


def before_call(place: Any, name: str, is_now: Callable[..., bool], numbers: Sequence[signal.Signals]) -> None:
    """Deliver the signals before the first call for which it is time."""
    original, is_done = getattr(place, name), False

    def call(*arguments: Any, **options: Any) -> Any:
        nonlocal is_done
        if not is_done and is_now(*arguments):
            is_done = True
            deliver(numbers)
        return original(*arguments, **options)

    setattr(place, name, call)


def deliver(numbers: Sequence[signal.Signals]) -> None:
    """Send the signals, one after the other."""
    for number in numbers:
        deliver_one(number)
    if len(numbers) > 1:
        threading.Event().wait()  # whatever this process does, it is ended


def deliver_one(number: signal.Signals) -> None:
    """Send the signal; returns when it has come back to this process, if it makes a difference here."""
    if not is_launched() or number == signal.SIGKILL:
        os.kill(os.getpid(), number)
        return
    read, write = os.pipe()
    os.set_blocking(write, False)
    before = signal.set_wakeup_fd(write)  # a byte comes there with every signal, whenever Python looks at it
    os.kill(os.getppid(), number)
    if signal.getsignal(number) is signal.SIG_IGN:
        os.kill(os.getpid(), number)  # it need not come back in time
    else:
        assert select.select([read], [], [], 60)[0], "the signal was not passed on"
    signal.set_wakeup_fd(before)
    if before >= 0 and select.select([read], [], [], 0)[0]:
        os.write(before, os.read(read, 16))  # for who has asked for it first


if __name__ == "__main__":
    from treelm.cli import main

    install(sys.argv[1:])
    main()
