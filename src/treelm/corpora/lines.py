"""Files as numbered lines of bytes, and lines cut into stretches of one sentence each.

Cutting a file into stretches is cheap and happens in one process; what a stretch says is found out by itself, in any
process. So a bad sentence cannot harm its neighbours, and the result does not depend on who read what.
"""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice, starmap
from pathlib import Path
from typing import IO, Literal, NamedTuple

from treelm.errors import InputError
from treelm.io.files import BYTE_ORDER_MARK, STDIN, check_is_file, unreadable

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
REST_LOST = "gzip data is truncated or damaged: what follows is lost"
"""The finding of the error of a damaged file, which is about any number of sentences, not one."""
_SHORT_LINE = 1 << 26  # bytes; a line beyond it is a binary file or a mistake
_MAX_LINES_OF_FIRST_TREE = 10_000
_MAX_LINES_OF_COMMENTS = 1000
# A bracket, and a label in capitals right behind it, in another one or alone on its line: not "(see (Smith 1990)".
_TREE = re.compile(rb"\(\s*(?:[A-Z][!-'*-`{-~]*\s*)?(?:\([!-'*-`{-~]+(?:[\s(]|$)|$)")
_TOKEN = re.compile(rb"\d+([-.]\d+)?(\t[^\t]+){9}$")  # of CoNLL-U
_NEW_DOCUMENT = re.compile(rb"#\s*newdoc\b")  # of CoNLL-U


class Stretch(NamedTuple):
    """The bytes of one sentence (or of what stands in its place), and the number of its first line."""

    line: int
    content: bytes
    document: int = 0
    """Number of the document that it belongs to, from 0."""


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


def numbered_lines(
    stream: IO[bytes], *, name: str, damage: list[InputError] | None = None
) -> Iterator[tuple[int, bytes]]:
    """Lines from 1 without their ends (LF or CRLF) and without a byte order mark at the start of the file.

    Lines end where a gzip file is damaged. With ``damage`` its error is appended there, without it raised.

    Raises ``InputError`` for a line of 64 MiB or more.
    """
    number = 0
    try:
        while line := stream.readline(_SHORT_LINE):
            number += 1
            if number == 1:
                line = line.removeprefix(BYTE_ORDER_MARK)
            if len(line) == _SHORT_LINE:
                raise InputError("a line of 64 MiB or more", where=f"{name}:{number}", remedy="is this a text file?")
            yield number, line.rstrip(b"\r\n")
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        broken = InputError(REST_LOST, where=f"{name}:{number + 1}", remedy="fetch or compress the file again")
        if damage is None:
            raise broken from error
        damage.append(broken)
    except OSError as error:
        raise unreadable(error, name) from error


def only_text(lines: Iterator[tuple[int, bytes]], *, name: str) -> Iterator[tuple[int, bytes]]:
    """Pass on the lines of input that nobody has said to be text.

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


def cut(lines: Iterable[tuple[int, bytes]], format: Format, *, blank_lines: bool = False) -> Iterator[Stretch]:
    """Cut a file into stretches of one sentence each; blank lines between sentences are left out.

    Blank lines divide text and trees into documents, comments ``# newdoc`` do so in CoNLL-U. With ``blank_lines``, each
    is a stretch, and all is one document.
    """
    cutters: dict[Format, Callable[[Iterable[tuple[int, bytes]]], Iterator[Stretch]]] = {
        "brackets": partial(_cut_brackets, blank_lines=blank_lines),
        "conllu": _cut_conllu,
        "text": partial(starmap, Stretch) if blank_lines else _cut_text,
    }
    return cutters[format](lines)


def _cut_text(lines: Iterable[tuple[int, bytes]]) -> Iterator[Stretch]:
    """Give each line a stretch; blank ones too, which readers count."""
    document, is_begun, is_after_blank = 0, False, False
    for number, line in lines:
        is_blank = not line.strip()
        if not is_blank:
            document += is_begun and is_after_blank
            is_begun = True
        is_after_blank = is_blank
        yield Stretch(number, line, document)


def _cut_conllu(lines: Iterable[tuple[int, bytes]]) -> Iterator[Stretch]:
    """Give the lines between two blank lines a stretch: a sentence of CoNLL-U."""
    held: list[bytes] = []
    first, document, is_begun = 0, 0, False

    def take() -> Stretch:
        nonlocal document, is_begun
        document += is_begun and any(_NEW_DOCUMENT.match(line) for line in held if line.startswith(b"#"))
        is_begun = True
        return Stretch(first, b"\n".join(held), document)

    for number, line in lines:
        if line.strip():
            first = first if held else number
            held.append(line)
        elif held:
            yield take()
            held = []
    if held:
        yield take()


def _cut_brackets(lines: Iterable[tuple[int, bytes]], *, blank_lines: bool) -> Iterator[Stretch]:
    """Give the lines up to the one that closes all brackets a stretch: the rule of ``treelm.trees.brackets``.

    A line that starts with ``(``, no further right than the file's first tree, begins a new tree, unless the first tree
    has such lines inside. So one missing bracket costs one tree.
    """
    cutter = _BracketCutter(blank_lines=blank_lines)
    for number, line in lines:
        yield from cutter.feed(number, line)
    yield from cutter.finish()


class _BracketCutter:
    def __init__(self, *, blank_lines: bool) -> None:
        """Begin before the first line; the layout is learnt from the first tree."""
        self.blank_lines = blank_lines
        self.held: list[tuple[int, bytes]] = []
        self.depth = 0
        self.margin: int | None = None  # column of the first tree
        self.free_layout: bool | None = None  # whether trees have lines at the margin inside; None: not known yet
        self.document, self.is_begun, self.is_after_blank = 0, False, False

    def feed(self, number: int, line: bytes) -> Iterator[Stretch]:
        """Take one line; gives the stretches that it ends."""
        if not self.held and not line.strip():  # a blank line inside a tree counts, so that lines keep their numbers
            if self.blank_lines:
                yield Stretch(number, line)
            self.is_after_blank = True
            return
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
        """Give the stretches that are left at the end of the file."""
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
        self.document += self.is_begun and self.is_after_blank and not self.blank_lines
        self.is_begun, self.is_after_blank = True, not self.held[-1][1].strip()
        stretch = Stretch(self.held[0][0], b"\n".join(line for _, line in self.held), self.document)
        self.held, self.depth = [], 0
        return stretch
