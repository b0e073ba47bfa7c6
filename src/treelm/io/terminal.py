"""The terminal: consoles of rich and messages for people, who may leave before the end."""

from __future__ import annotations

import errno
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TextIO, cast

from treelm.errors import one_line
from treelm.io.atomic import WRITE_ERRORS

if TYPE_CHECKING:
    from rich.console import Console


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
        with suppress_hangup():
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Write out what is held back."""
        with suppress_hangup():
            self._stream.flush()
