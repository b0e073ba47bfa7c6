"""Files as numbered lines of bytes, and lines as the stretches that hold one sentence each.

Cutting a file into stretches is cheap and happens in one process; what a stretch says is found out by itself, in any
process. So a bad sentence cannot harm its neighbours, and the result does not depend on who read what.
"""

from __future__ import annotations

import gzip
import io
import os
import re
import stat
import sys
import zlib
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import IO, Literal, NamedTuple, cast

from treelm.errors import InputError

Format = Literal["brackets", "conllu", "text"]
SUFFIXES: dict[str, Format] = {
    ".ptb": "brackets",
    ".mrg": "brackets",
    ".brackets": "brackets",
    ".trees": "brackets",
    ".conllu": "conllu",
    ".txt": "text",
    ".tokens": "text",
}
STDIN = "-"
REST_LOST = "gzip data is truncated or damaged: what follows is lost"
"""What the error of a damaged file finds: of any number of sentences, not of one."""
_UTF16_MARKS = (BOM_UTF16_LE, BOM_UTF16_BE)
_NEW_LINE, _NUL = b"\n", b"\0"
_CR_ALONE = re.compile(rb"\r(?![\r\n]|\Z)")
_GZIP_MAGIC = b"\x1f\x8b"
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_MOST_UNPACKED = 1 << 29  # bytes of a file that is read whole; a few kilobytes of gzip can hold any number of them
_SHORT_LINE = 1 << 26  # bytes; a line beyond it is a binary file or a mistake
_MAX_LINES_OF_FIRST_TREE = 10_000
_MAX_LINES_OF_COMMENTS = 1000
# A bracket, and a label in capitals right behind it, in another one or alone on its line: not "(see (Smith 1990)".
_TREE = re.compile(rb"\(\s*(?:[A-Z][!-'*-`{-~]*\s*)?(?:\([!-'*-`{-~]+(?:[\s(]|$)|$)")
_TOKEN = re.compile(rb"\d+([-.]\d+)?(\t[^\t]+){9}$")  # of CoNLL-U


class Stretch(NamedTuple):
    """The bytes of one sentence (or of what stands in its place), and the number of its first line."""

    line: int
    content: bytes


def format_of(path: str) -> Format:
    """The format that the name of a file tells; raises InputError when it tells none, or is that of no file."""
    name = path.removesuffix(".gz")
    suffix = Path(name).suffix.lower()
    if path == STDIN or suffix not in SUFFIXES:
        check_is_file(path)
        found = "standard input tells no format" if path == STDIN else f"the name of {path} tells no format"
        named = f"or give a file whose name ends in {', '.join(SUFFIXES)}"
        raise InputError(found, remedy=f"say format: brackets, conllu or text; {named}")
    return SUFFIXES[suffix]


def check_is_file(path: str) -> None:
    """Raise InputError for a path that leads to no file: a folder, links in a circle, no path at all."""
    try:
        is_folder = stat.S_ISDIR(os.stat(path).st_mode)
    except FileNotFoundError:  # told where it is opened
        return
    except OSError as error:
        raise _unreadable(error, path) from error
    except ValueError as error:  # a NUL character
        raise _no_path(error, path) from error
    if is_folder:
        raise InputError("a folder", where=path, remedy="give a file")


def name_of(source: str | Path | IO[bytes]) -> str:
    """What messages call a source."""
    if isinstance(source, str | Path):
        return "<stdin>" if str(source) == STDIN else str(source)
    return str(getattr(source, "name", "<stream>"))


@contextmanager
def open_bytes(source: str | Path | IO[bytes]) -> Iterator[IO[bytes]]:
    """Open a file, ``-`` for standard input, or a binary stream; unpacks gzip, which it knows by its first bytes."""
    if not isinstance(source, str | Path):
        yield source if isinstance(source, gzip.GzipFile) else _unpacked(source)
    elif str(source) == STDIN:
        if sys.stdin is None:
            raise InputError("standard input is closed", where=name_of(source), remedy="open it, or give a file")
        yield _unpacked(sys.stdin.buffer)
    else:
        try:
            stream = Path(source).open("rb")  # noqa: SIM115 (closed below)
        except OSError as error:
            raise _unreadable(error, str(source)) from error
        except ValueError as error:  # a NUL character
            raise _no_path(error, str(source)) from error
        with stream:
            yield _unpacked(stream)


def _unreadable(error: OSError, name: str) -> InputError:
    return InputError(f"cannot read it ({error.strerror or error})", where=name, remedy="check the path")


def _no_path(error: ValueError, name: str) -> InputError:
    return InputError(f"not a path ({error})", where=repr(name), remedy="check the path")


def _unpacked(stream: IO[bytes]) -> IO[bytes]:
    if not hasattr(stream, "peek"):
        stream = io.BufferedReader(cast(io.RawIOBase, stream))
    peekable = cast(io.BufferedReader, stream)
    if peekable.peek(len(_GZIP_MAGIC))[: len(_GZIP_MAGIC)] == _GZIP_MAGIC:
        return cast(IO[bytes], gzip.GzipFile(fileobj=peekable))
    return peekable


def is_gzip(content: bytes) -> bool:
    """Whether a file begins as gzip does."""
    return content[: len(_GZIP_MAGIC)] == _GZIP_MAGIC


def unpacked(content: bytes, *, name: str) -> bytes:
    """The content of a file that is read whole, unpacked if it is gzip; ``name`` is for messages.

    Raises ``InputError`` for gzip data that are damaged or would fill the memory.
    """
    if not is_gzip(content):
        return content
    return read_whole(cast(IO[bytes], gzip.GzipFile(fileobj=io.BytesIO(content))), name=name)


def whole_text(content: bytes, *, name: str) -> str:
    """The text of a file that is read whole, unpacked and without a byte order mark.

    Raises ``InputError`` as ``unpacked`` and ``decoded`` do.
    """
    return decoded(unpacked(content, name=name).removeprefix(_BYTE_ORDER_MARK), name=name)


def decoded(content: bytes, *, name: str, line: int = 1) -> str:
    """UTF-8 as text; ``content`` is from the file ``name`` and begins on ``line`` of it, for messages.

    Raises ``InputError`` with the line for other encodings, NUL characters, and line ends that are CR alone.
    """
    convert = "convert the file to UTF-8"
    problem: tuple[str, int, str] | None = None  # what, where in the content, and what to do
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        problem = f"byte 0x{content[error.start]:02x} is not UTF-8", error.start, convert
    else:
        if _NUL in content:
            problem = "a NUL character", content.index(_NUL), f"remove it, or {convert} if that is not its encoding"
        elif b"\r" in content and (alone := _CR_ALONE.search(content)) is not None:
            problem = "a line end that is CR alone", alone.start(), "convert line ends to LF"
    if problem is None:
        return text
    if content.startswith(_UTF16_MARKS) or _has_many_nuls(content):
        problem = "looks like UTF-16", 0, convert
    found, place, remedy = problem
    raise InputError(found, where=f"{name}:{line + content.count(_NEW_LINE, 0, place)}", remedy=remedy)


def _has_many_nuls(content: bytes) -> bool:
    """Whether nearly every second byte is NUL: the half of each character of alphabetic text in UTF-16."""
    return len(content) > 3 and any(8 * content[half::2].count(_NUL) > 3 * len(content) for half in (0, 1))


def read_whole(stream: IO[bytes] | gzip.GzipFile, *, name: str) -> bytes:
    """All that a stream of ``open_bytes`` holds. Raises ``InputError`` as ``unpacked`` does."""
    try:
        content = stream.read(_MOST_UNPACKED + 1) if isinstance(stream, gzip.GzipFile) else stream.read()
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        found = "gzip data is truncated or damaged"
        raise InputError(found, where=name, remedy="fetch or compress the file again") from error
    except OSError as error:
        raise _unreadable(error, name) from error
    if len(content) > _MOST_UNPACKED:
        raise InputError("more than 512 MiB when unpacked", where=name, remedy="unpack it first, if it is meant so")
    return content


def numbered_lines(
    stream: IO[bytes], *, name: str, damage: list[InputError] | None = None
) -> Iterator[tuple[int, bytes]]:
    """Lines from 1 without their ends (LF or CRLF) and without a byte order mark at the start of the file.

    Lines end where a gzip file is damaged. With ``damage`` its error is appended there, without it raised.
    """
    number = 0
    try:
        while line := stream.readline(_SHORT_LINE):
            number += 1
            if number == 1:
                line = line.removeprefix(_BYTE_ORDER_MARK)
            if len(line) == _SHORT_LINE:
                raise InputError("a line of 64 MiB or more", where=f"{name}:{number}", remedy="is this a text file?")
            yield number, line.rstrip(b"\r\n")
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        broken = InputError(REST_LOST, where=f"{name}:{number + 1}", remedy="fetch or compress the file again")
        if damage is None:
            raise broken from error
        damage.append(broken)
    except OSError as error:
        raise _unreadable(error, name) from error


def only_text(lines: Iterator[tuple[int, bytes]], *, name: str) -> Iterator[tuple[int, bytes]]:
    """The same lines, of input that nobody has said to be text.

    Raises ``InputError`` if the first line that is neither blank nor a comment is that of a tree or of CoNLL-U: its
    brackets and columns would be taken for words. Trees whose labels are not in capitals are not known as such.
    """
    held: list[tuple[int, bytes]] = []
    for number, line in islice(lines, _MAX_LINES_OF_COMMENTS):
        held.append((number, line))
        content = line.strip()
        if content and not content.startswith(b"#"):
            for format, pattern in (("brackets", _TREE), ("conllu", _TOKEN)):
                if pattern.match(content):
                    remedy = f"say format {format}, or format text if it is meant so"
                    raise InputError(f"looks like {format}, not like text", where=f"{name}:{number}", remedy=remedy)
            break
    yield from held
    yield from lines


def cut(lines: Iterable[tuple[int, bytes]], format: Format) -> Iterator[Stretch]:
    """Cut a file into stretches of one sentence each; blank lines between sentences are left out."""
    cutters: dict[Format, Callable[[Iterable[tuple[int, bytes]]], Iterator[Stretch]]] = {
        "brackets": _cut_brackets,
        "conllu": _cut_conllu,
        "text": _cut_text,
    }
    return cutters[format](lines)


def _cut_text(lines: Iterable[tuple[int, bytes]]) -> Iterator[Stretch]:
    """Every line, blank ones too: only the reader knows whether they count."""
    return (Stretch(number, line) for number, line in lines)


def _cut_conllu(lines: Iterable[tuple[int, bytes]]) -> Iterator[Stretch]:
    """Lines between blank lines."""
    held: list[bytes] = []
    first = 0
    for number, line in lines:
        if line.strip():
            first = first if held else number
            held.append(line)
        elif held:
            yield Stretch(first, b"\n".join(held))
            held = []
    if held:
        yield Stretch(first, b"\n".join(held))


def _cut_brackets(lines: Iterable[tuple[int, bytes]]) -> Iterator[Stretch]:
    """Lines up to the one that closes all brackets; the same rule as in ``treelm.trees.brackets``.

    A line that starts with ``(``, no further right than the file's first tree, begins a new tree, unless the first tree
    has such lines inside. So one missing bracket costs one tree.
    """
    cutter = _BracketCutter()
    for number, line in lines:
        yield from cutter.feed(number, line)
    yield from cutter.finish()


class _BracketCutter:
    def __init__(self) -> None:
        self.held: list[tuple[int, bytes]] = []
        self.depth = 0
        self.margin: int | None = None  # column of the first tree
        self.free_layout: bool | None = None  # whether trees have lines at the margin inside; None: not known yet

    def feed(self, number: int, line: bytes) -> Iterator[Stretch]:
        """Take one line; gives the stretches that it ends."""
        if not self.held and not line.strip():
            return  # but a blank line inside a tree counts, so that lines keep their numbers
        if self.margin is None and line.lstrip().startswith(b"("):
            self.margin = len(line) - len(line.lstrip())
        if self.held and self.free_layout is False and self._at_margin(line):
            yield self._take()
        self.held.append((number, line))
        self.depth += line.count(b"(") - line.count(b")")
        if self.depth <= 0:
            if self.free_layout is None and self.margin is not None:
                self.free_layout = any(self._at_margin(inner) for _, inner in self.held[1:])
            yield self._take()
        elif self.free_layout is None and len(self.held) > _MAX_LINES_OF_FIRST_TREE:
            yield from self._cut_again()

    def finish(self) -> Iterator[Stretch]:
        """What is left at the end of the file."""
        if self.held and self.free_layout is None:
            yield from self._cut_again()
        if self.held:
            yield self._take()

    def _at_margin(self, line: bytes) -> bool:
        start = line.lstrip()
        return start.startswith(b"(") and len(line) - len(start) <= (self.margin or 0)

    def _cut_again(self) -> Iterator[Stretch]:
        """The first tree never closed: read on as if every line at the margin began a tree."""
        held, self.held, self.depth, self.free_layout = self.held, [], 0, False
        for number, line in held:
            yield from self.feed(number, line)

    def _take(self) -> Stretch:
        stretch = Stretch(self.held[0][0], b"\n".join(line for _, line in self.held))
        self.held, self.depth = [], 0
        return stretch
