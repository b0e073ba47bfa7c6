"""SIGINT, SIGTERM and SIGUSR1 ask for an end after the present step; SIGINT after that ends the process at once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

# SIGUSR1 is what batch jobs ask schedulers to send some minutes before time is up; Windows has none.
_SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGUSR1") if hasattr(signal, name))


class StopRequest:
    """Which signal came first, if any."""

    signal_name: str | None = None


@contextmanager
def stop_on_signals() -> Iterator[StopRequest]:
    """Watch for signals while the block runs. Outside the main thread Python allows no handlers: nothing is watched.

    A second SIGTERM changes nothing: job schedulers often send it to a process and again to its group.
    """
    request = StopRequest()

    def remember(number: int, frame: FrameType | None) -> None:
        request.signal_name = request.signal_name or signal.Signals(number).name
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # the next one kills even within a long operation

    if threading.current_thread() is not threading.main_thread():
        yield request
        return
    before = {number: signal.signal(number, remember) for number in _SIGNALS}
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
