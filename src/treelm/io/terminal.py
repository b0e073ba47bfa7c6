"""The terminal: consoles of rich and messages for people, who may leave before the end."""

from __future__ import annotations

import errno
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TextIO, cast

from treelm.errors import one_line
from treelm.io.atomic import WRITE_ERRORS

if TYPE_CHECKING:
    from rich.console import Console

SECONDS_TO_FIRST_NOTE, SECONDS_BETWEEN_NOTES = 2.0, 30.0
"""For how long people hear nothing of what goes on, before its first note and between two of them."""
_under_way: list[Callable[[], str]] = []
"""What tells what is going on, the innermost last; "" for what is to be seen anyway."""
_heard = 0.0
"""When people last heard of it, by the monotonic clock."""


def heard() -> None:
    """Remember that people have just been told or shown something."""
    global _heard
    _heard = time.monotonic()


@contextmanager
def doing(what: str | Callable[[], str]) -> Iterator[None]:
    """Name what goes on, such as "loading rnng-gum-open", for ``told`` to tell; "" is what people see by itself.

    A function gives the words of the moment, such as how far it is.
    """
    tell = what if callable(what) else lambda: what
    _under_way.append(tell)
    try:
        yield
    finally:
        _under_way.remove(tell)


@contextmanager
def told() -> Iterator[None]:
    """Tell people what goes on, in a line, once they have heard nothing for two seconds, then every thirty."""
    is_over = threading.Event()

    def tell() -> None:
        last, since = None, time.monotonic()
        while not is_over.wait(SECONDS_TO_FIRST_NOTE / 8):
            now, current = time.monotonic(), _under_way[-1] if _under_way else None
            is_new = current is not last
            if current and now - _heard >= (SECONDS_TO_FIRST_NOTE if is_new else SECONDS_BETWEEN_NOTES):
                last, since = current, now if is_new else since
                if what := current():
                    log(f"{what} ..." if is_new else f"{what} ... {now - since + SECONDS_TO_FIRST_NOTE:.0f} s")

    heard()
    thread = threading.Thread(target=tell, daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()  # it would disturb the interpreter's end


@contextmanager
def suppress_hangup() -> Iterator[None]:
    """Let nothing come of writing to people who have left: what is under way is not to be lost with them.

    Their terminal may be closed, of a pipe the reader (a viewer of logs, ``tee``, ``head``) may have ended, and the
    disk of a log may be full.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in (*WRITE_ERRORS, errno.EPIPE):
            raise


def log(message: str) -> None:
    """Tell people something on standard error, in one line whatever it quotes, if they are still there."""
    heard()
    with suppress_hangup():
        print(one_line(message), file=sys.stderr)


def stdout_console(width: int | None = None) -> Console:
    """A console on standard output that raises ``BrokenPipeError`` when its reader has gone, as every stream does.

    Rich would end the program by itself, with an exit code of its own.
    """
    from rich.console import Console  # here because commands that print plain lines need no rich

    class StdoutConsole(Console):
        def on_broken_pipe(self) -> None:
            raise

    return StdoutConsole(width=width)


def stderr_console(stream: TextIO | None = None) -> Console:
    """A console on standard error, or ``stream``, that goes on in silence when its reader has gone."""
    from rich.console import Console

    return Console(file=cast(TextIO, _Enduring(stream or sys.stderr)))


class _Enduring:
    """A stream that may be a terminal, and that may be closed while work goes on, or is saved for that reason."""

    def __init__(self, stream: TextIO) -> None:
        """Hand on to this one."""
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        """Encoding, descriptor and the like are those of the stream."""
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write, if there still is somebody to see it."""
        heard()
        with suppress_hangup():
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Write out what is held back."""
        with suppress_hangup():
            self._stream.flush()
