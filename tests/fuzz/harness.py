"""One case: a hostile file is read within limits of time and memory, and either it reads or it raises InputError."""

from __future__ import annotations

import resource
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from tests.fuzz.edits import Edit, edited
from treelm.errors import InputError

CPU_SECONDS = 10
MEMORY = 1 << 30  # bytes of address space that a case may add
MOST_CHARACTERS = 10_000  # of a message


@dataclass(frozen=True, kw_only=True)
class Reader:
    """A reader under test."""

    name: str
    file: str
    """Name of the file that it reads, in a folder of its own."""
    seeds: Callable[[], Sequence[bytes]]
    """Good files."""
    read: Callable[[Path], None]
    """Reads the file, and fails an assertion when what it gives is not all that the file holds."""
    company: Callable[[Path], None] = lambda folder: None
    """Puts other files beside it."""
    seal: Callable[[bytes], bytes] | None = None
    """Makes hashes right again after an edit, so that what is behind them is reached; every other case."""


class TooSlow(BaseException):
    """Not an Exception, so that no reader takes it for bad input."""


def hostile(reader: Reader, seed: int, edits: Sequence[Edit], *, sealed: bool) -> bytes:
    """The content of a case."""
    seeds = reader.seeds()
    content = edited(seeds[seed % len(seeds)], edits)
    return reader.seal(content) if sealed and reader.seal is not None else content


def check(reader: Reader, folder: Path, content: bytes) -> bool:
    """Read the content as a file; whether it was read. Raises for anything but a good answer or an InputError."""
    path = folder / reader.file
    path.write_bytes(content)
    try:
        with limits():
            reader.read(path)
    except InputError as error:
        check_message(error, folder)
        return False
    return True


def check_message(error: InputError, folder: Path) -> None:
    """What every message must be: one line that can be shown, names the place, and says what to do."""
    message = str(error)
    assert message.isprintable(), repr(message)
    assert len(message) < MOST_CHARACTERS, len(message)
    assert folder.name in message, f"no place: {message}"
    assert error.remedy, error


@contextmanager
def limits() -> Iterator[None]:
    """A limit of processor time, which a slow machine does not change, and one of memory."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise TooSlow(f"{CPU_SECONDS} seconds of processor time")

    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0]) if Path("/proc/self/statm").exists() else None
    before = signal.signal(signal.SIGPROF, stop)
    if pages is not None:
        resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + MEMORY, hard))
    signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
