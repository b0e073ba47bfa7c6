"""Handling of SIGINT, SIGTERM, SIGHUP and SIGUSR1 in a training process.

Before training they end it at once (``quit_on_signals``); in training they ask for an end after the present step
(``stop_on_signals``), where another SIGINT ends the process at once; when training is over, they
change nothing any more, so that the exit code says how it went.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

# SIGHUP comes when a terminal or connection is closed; SIGUSR1 is what batch jobs ask schedulers to send some minutes
# before time is up. Windows has neither.
_NAMES = ("SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1")
_SIGNALS = tuple(getattr(signal, name) for name in _NAMES if hasattr(signal, name))
EXIT_INTERRUPTED = 130  # as shells say it of a process that SIGINT has ended
_pipes: list[int] = []  # where the numbers of signals come, while this process trains

Handler = Callable[[int, "FrameType | None"], object]


def watched_signals() -> tuple[int, ...]:
    """The signals that training listens to: not SIGHUP if whoever started it has it ignored, as nohup does."""
    hangup = getattr(signal, "SIGHUP", None)
    return tuple(one for one in _SIGNALS if one != hangup or signal.getsignal(one) != signal.SIG_IGN)


class StopRequest:
    """The name of the signal that came first, if any."""

    signal_name: str | None = None


@contextmanager
def stop_on_signals(last_words: Callable[[], object] = lambda: None) -> Iterator[StopRequest]:
    """Watch for signals while the block runs. Outside the main thread Python allows no handlers: nothing is watched.

    SIGINT after another signal calls ``last_words`` and ends the process with ``EXIT_INTERRUPTED``. A second SIGTERM
    changes nothing: job schedulers often send it to a process and again to its group.
    """
    request = StopRequest()

    def remember(number: int, frame: FrameType | None) -> None:
        request.signal_name = request.signal_name or signal.Signals(number).name

    if threading.current_thread() is not threading.main_thread():
        yield request
        return
    with _ending_at_another_sigint(last_words), handling(remember):
        yield request


@contextmanager
def _ending_at_another_sigint(last_words: Callable[[], object]) -> Iterator[None]:
    """Watch from a thread: handlers would wait for the operation that the main thread is in, which may be long."""
    read, write = os.pipe()
    os.set_blocking(write, False)
    thread = threading.Thread(target=_end_at_another_sigint, args=(read, last_words), daemon=True)
    thread.start()
    before = signal.set_wakeup_fd(write, warn_on_full_buffer=False)  # the number of every signal comes there at once
    _pipes.append(write)
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        _pipes.remove(write)
        os.close(write)  # ends the thread
        thread.join()
        os.close(read)


def _end_at_another_sigint(pipe: int, last_words: Callable[[], object]) -> None:
    is_first = True
    while number := os.read(pipe, 1):
        if number[0] == signal.SIGINT and not is_first:
            try:
                last_words()
            finally:
                os._exit(EXIT_INTERRUPTED)
        is_first = is_first and number[0] not in _SIGNALS


def _leave_it_to_the_parent() -> None:
    """Stop listening in a process that was forked while training: its signals are not those of the one that trains."""
    if _pipes:
        signal.set_wakeup_fd(-1)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_it_to_the_parent)


class Quit:
    """A handler that ends the process, until training is over."""

    def __init__(self, exit_code: int) -> None:
        """SIGINT raises ``KeyboardInterrupt`` as ever, the others end the process with ``exit_code``."""
        self._exit_code = exit_code
        self.is_over = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Take a signal."""
        if not self.is_over:
            self._quit(number)

    def _quit(self, number: int) -> NoReturn:
        if number == signal.SIGINT:
            raise KeyboardInterrupt
        raise SystemExit(self._exit_code)


@contextmanager
def quit_on_signals(exit_code: int, *, to_the_end: bool = False) -> Iterator[None]:
    """Let signals end the process at once with that code while the block runs, but not after training in it.

    ``to_the_end``: nothing follows in this process, so they stay without effect until it is gone; the interpreter's own
    end takes a while.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handler = Quit(exit_code)
    before = {number: signal.signal(number, handler) for number in watched_signals()}
    try:
        yield
    finally:
        handler.is_over = True
        for number, old in before.items():
            signal.signal(number, signal.SIG_IGN if to_the_end and number != signal.SIGINT else old)


@contextmanager
def handling(handler: Handler) -> Iterator[None]:
    """Handle the signals that training listens to while the block runs; training is over after it."""
    before = {number: signal.signal(number, handler) for number in watched_signals()}
    try:
        yield
    finally:
        for old in before.values():
            if isinstance(old, Quit):
                old.is_over = True  # first, so that no signal falls in between
        for number, old in before.items():
            signal.signal(number, old)
