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
_is_telling = False
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
    """Tell people what goes on, in a line, once they have heard nothing for two seconds, then every thirty.

    Nothing begins within another call, such as that of the command line, which tells already.
    """
    global _is_telling
    if _is_telling:
        yield
        return
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
    thread, _is_telling = threading.Thread(target=tell, daemon=True), True
    thread.start()
    try:
        yield
    finally:
        _is_telling = False
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


@contextmanager
def progress_bar(
    what: str, total: int | None, *, unit: str = "sentences", shares_terminal: bool = False
) -> Iterator[Callable[[], None]]:
    """Give what to call after each sentence: a bar on standard error, or a line now and then if it is not a terminal.

    What is counted may be other than sentences: ``unit`` is its name, for the line. With ``shares_terminal`` there is
    no bar if what is written goes to the terminal too, where one would stand in the other.
    """
    console, done = stderr_console(), 0
    is_shown = shares_terminal and sys.stdout is not None and sys.stdout.isatty()
    if is_shown or not console.is_terminal:

        def advance() -> None:
            nonlocal done
            done += 1
            if is_shown:
                heard()

        of = "" if total is None else f" of {total}"
        with doing(lambda: f"{what}: {done}{of} {unit}"):
            yield advance
    else:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with doing(""), Progress(*columns, console=console, transient=True) as progress:
            task = progress.add_task(what, total=total)
            yield lambda: progress.advance(task)


@contextmanager
def show_progress(what: str, total: int | None) -> Iterator[Callable[[], None]]:
    """A progress bar, and a line when it is done."""
    begin = time.perf_counter()
    with progress_bar(what, total) as advance:
        yield advance
    log(f"{what}: done in {time.perf_counter() - begin:.0f} s")
