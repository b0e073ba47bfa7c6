"""The terminal: consoles of rich, progress, and messages for people, who may leave before the end."""

from __future__ import annotations

import errno
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TextIO, cast

from treelm.errors import one_line
from treelm.io.atomic import WRITE_ERRORS

if TYPE_CHECKING:
    from rich.console import Console

SECONDS_BETWEEN_NOTES = 30.0  # of how far something is, where standard error is no terminal
_has_bar = False  # in the terminal, beside which there is no other


@contextmanager
def suppress_hangup() -> Iterator[None]:
    """Ignore errors of writing to people who have left, or to a full disk, so that work in progress is not lost.

    Their terminal may be closed, the reader of a pipe (a viewer of logs, ``tee``, ``head``) may have ended, or the disk
    of a log may be full.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in (*WRITE_ERRORS, errno.EPIPE):
            raise


def log(message: str) -> None:
    """Tell people something on standard error, in one line whatever it quotes, if they are still there."""
    with suppress_hangup():
        print(one_line(message), file=sys.stderr)


def stdout_console(width: int | None = None) -> Console:
    """A console on standard output that raises ``BrokenPipeError`` when its reader has gone, as every stream does.

    Without it, rich would end the program with an exit code of its own.
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
        with suppress_hangup():
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Write out what is held back."""
        with suppress_hangup():
            self._stream.flush()


def notes() -> Callable[[str], None]:
    """Give a function that logs a text, unless it has logged another one less than half a minute before."""
    last = time.monotonic()

    def note(text: str) -> None:
        nonlocal last
        if (now := time.monotonic()) - last >= SECONDS_BETWEEN_NOTES:
            last = now
            log(text)

    return note


@contextmanager
def doing(what: str) -> Iterator[None]:
    """Show in a terminal, while the block runs, what is being done, such as "loading rnng-gum-open"."""
    global _has_bar
    if _has_bar or sys.stderr is None or not sys.stderr.isatty():
        yield
        return
    _has_bar = True
    try:
        with stderr_console().status(what):
            yield
    finally:
        _has_bar = False


@contextmanager
def progress_bar(
    what: str, total: int | None, *, unit: str = "sentences", shares_terminal: bool = False
) -> Iterator[Callable[[], None]]:
    """Give a function to call after each sentence: it moves a bar on standard error, or logs a line every half minute.

    The bar is for terminals and the lines for all else. ``unit`` names what is counted, if it is not sentences. With
    ``shares_terminal`` nothing is shown if standard output is the same terminal, where the two would get mixed up.
    """
    global _has_bar
    console = stderr_console()
    if console.is_terminal and not (shares_terminal and sys.stdout is not None and sys.stdout.isatty()):
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Progress(*columns, console=console, transient=True, disable=_has_bar) as progress:
            before, _has_bar = _has_bar, True
            task = progress.add_task(what, total=total)
            try:
                yield lambda: progress.advance(task)
            finally:
                _has_bar = before
        return
    done, of, note = 0, "" if total is None else f" of {total}", notes()

    def advance() -> None:
        nonlocal done
        done += 1
        if not console.is_terminal:
            note(f"{what}: {done}{of} {unit}")

    yield advance


@contextmanager
def show_progress(what: str, total: int | None) -> Iterator[Callable[[], None]]:
    """A progress bar, and a line when it is done."""
    begin = time.perf_counter()
    with progress_bar(what, total) as advance:
        yield advance
    log(f"{what}: done in {time.perf_counter() - begin:.0f} s")
