"""Consoles of rich for what people read, who may leave before the end of it."""

from __future__ import annotations

import io
import sys
from typing import TextIO, cast

from rich.console import Console

from treelm.corpora.outputs import suppress_hangup


class OutputConsole(Console):
    """A console on standard output that raises ``BrokenPipeError`` when its reader has gone, as every stream does.

    Rich would end the program by itself, with an exit code of its own.
    """

    def on_broken_pipe(self) -> None:
        """Raise again what was raised in writing."""
        raise


def notes_console(stream: TextIO | None = None) -> Console:
    """Give a console on standard error, or ``stream``, of which nothing comes when its reader has gone."""
    return Console(file=cast(TextIO, _Enduring(stream or sys.stderr)))


class _Enduring(io.TextIOBase):
    """A stream that may be a terminal, and that may be closed while work goes on, or is saved for that reason."""

    def __init__(self, stream: TextIO) -> None:
        """Hand on to this one."""
        self._stream = stream

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """Encoding of the stream, which decides what can be shown."""
        return self._stream.encoding

    def isatty(self) -> bool:
        """Tell whether a bar can be drawn."""
        return self._stream.isatty()

    def fileno(self) -> int:
        """Descriptor of the stream, so that its terminal's size is found."""
        return self._stream.fileno()

    def write(self, text: str) -> int:
        """Write, if there still is somebody to see it."""
        with suppress_hangup():
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Write out what is held back."""
        with suppress_hangup():
            self._stream.flush()
