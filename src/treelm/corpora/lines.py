"""Files as numbered lines of bytes, and lines cut into stretches of one sentence each.

A file is cut cheaply and in one process; each stretch is then read by itself, in any process. A bad sentence therefore
cannot harm its neighbours, and the result does not depend on which process read which sentence.
"""

from __future__ import annotations

import io
import re
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import chain, groupby, islice, tee
from pathlib import Path
from typing import IO, TYPE_CHECKING, Literal, NamedTuple, TypeVar

from treelm.errors import InputError
from treelm.io.files import BYTE_ORDER_MARK, DAMAGED, STDIN, check_is_file, in_utf8, name_of, unpacked_name, unreadable
from treelm.trees.treebanks import PENN, Treebank, repair_brackets, treebank_of

if TYPE_CHECKING:
    from treelm.corpora.readers import ReadOptions

Format = Literal["brackets", "conllu", "text"]
SUFFIXES: dict[str, Format] = {
    ".ptb": "brackets",
    ".mrg": "brackets",
    ".psd": "brackets",
    ".fid": "brackets",
    ".brackets": "brackets",
    ".trees": "brackets",
    ".conllu": "conllu",
    ".txt": "text",
    ".tokens": "text",
}
REST_LOST = "packed data is truncated or damaged: what follows is lost"
"""The finding of the error of a damaged file, which is about any number of sentences, not one."""
_SHORT_LINE = 1 << 26  # bytes; a line beyond it is a binary file or a mistake
_MAX_LINES_OF_FIRST_TREE = 10_000
_MAX_LINES_OF_COMMENTS = 1000
_ROWS = 10  # of a table, by which it is known
_LINES_WITH_SIGNS = 300  # at the begin of a file, which tell the treebank
# A bracket, and a label in capitals right behind it, in another one or alone on its line: not "(see (Smith 1990)".
_TREE = re.compile(rb"\(\s*(?:[A-Z][!-'*-`{-~]*\s*)?(?:\([!-'*-`{-~]+(?:[\s(]|$)|$)")
_TOKEN = re.compile(rb"\d+([-.]\d+)?(\t[^\t]+){9}$")  # of CoNLL-U
_NEW_DOCUMENT = re.compile(rb"#\s*newdoc\b")  # of CoNLL-U


class Stretch(NamedTuple):
    """The bytes of one sentence (or of what stands in its place), and what is known of the file that they stand in."""

    line: int  # number of the first line, from 1
    content: bytes  # in UTF-8
    document: int  # number of the document that the sentence belongs to, from 0
    source: str  # name of the file, as messages have it
    format: Format
    treebank: Treebank  # tells what is annotation in a sentence with brackets


def format_of(name: str) -> Format:
    """The format of a file by its name, as ``name_of`` gives it; standard input is text.

    Raises ``InputError`` for a name that tells no format, and for a folder.
    """
    if name == name_of(STDIN):
        return "text"
    suffix = Path(unpacked_name(name)).suffix.lower()
    if suffix not in SUFFIXES:
        check_is_file(name)
        named = f"or give a file whose name ends in {', '.join(SUFFIXES)}"
        remedy = f'give format = "brackets", "conllu" or "text", {named}'
        raise InputError(f"the name of {name} tells no format", remedy=remedy)
    return SUFFIXES[suffix]


def stretches(
    stream: IO[bytes],
    name: str,
    options: ReadOptions,
    *,
    damage: list[InputError] | None = None,
    left_out: Counter[str] | None = None,
) -> Iterator[Stretch]:
    """Cut a file, whose ``name`` is for messages, into stretches of one sentence each, without blank lines between.

    Blank lines divide text and trees into documents, as comments ``# newdoc`` do in CoNLL-U. All is one document where
    trees have numbers, and where ``options.empty_lines`` makes each blank line a stretch. ``left_out`` counts lines of
    markup. Raises ``InputError`` for a file of another format, for a table that nobody has called text (the format was
    "auto"), for a line of 64 MiB or more, and for packed data that are damaged, unless ``damage`` collects the error.
    """
    format, is_guess, blank_lines = options.format_for(name), options.format == "auto", options.empty_lines
    lines, known = _numbered_lines(stream, name, damage, options.encoding), PENN
    if format != "text" or is_guess:
        lines, _ = _ahead(lines, _MAX_LINES_OF_COMMENTS, lambda first: _check_format(format, first, name))
    if format == "text":
        if is_guess:
            lines, _ = _ahead(lines, _LINES_WITH_SIGNS, lambda first: _check_no_table(first, name))
        pieces = _text(lines, blank_lines=blank_lines)
    elif format == "conllu":
        pieces = _conllu(lines)
    else:
        lines, begin = _ahead(lines, _LINES_WITH_SIGNS, lambda first: b"\n".join(line for _, line in first))
        known = treebank_of(options.treebank, begin)
        if known.encoding and not options.encoding and "\ufffd" in begin.decode(errors="replace"):
            lines = ((number, in_utf8(line, known.encoding, name=name)) for number, line in lines)
        if options.repair_brackets:
            lines = ((number, repair_brackets(line)) for number, line in lines)
        pieces = _brackets(lines, known, Counter() if left_out is None else left_out, blank_lines=blank_lines)
    document, is_begun = 0, False
    for line, content, is_divided in pieces:
        document += is_begun and is_divided and not (blank_lines or known.divides_trees)
        is_begun = is_begun or bool(content.strip())
        yield Stretch(line, content, document, name, format, known)


_Lines = Iterator[tuple[int, bytes]]
_Pieces = Iterator[tuple[int, bytes, bool]]
"""First line, content, and whether something divides it from the piece before."""


Seen = TypeVar("Seen")


def _ahead(lines: _Lines, most: int, look: Callable[[_Lines], Seen]) -> tuple[_Lines, Seen]:
    """All lines, and what is seen by a look at the first ones, which reads no further than it has to."""
    lines, first = tee(lines)
    return lines, look(islice(first, most))


def _numbered_lines(stream: IO[bytes], name: str, damage: list[InputError] | None, encoding: str) -> _Lines:
    """Lines from 1 without their ends (LF or CRLF) and without a byte order mark at the start of the file."""
    number = 0
    try:
        if encoding:
            stream = io.BytesIO(in_utf8(stream.read(), encoding, name=name))
        while line := stream.readline(_SHORT_LINE):
            number += 1
            if number == 1:
                line = line.removeprefix(BYTE_ORDER_MARK)
            if len(line) == _SHORT_LINE:
                raise InputError("a line of 64 MiB or more", where=f"{name}:{number}", remedy="is this a text file?")
            yield number, line.rstrip(b"\r\n")
    except DAMAGED as error:
        broken = InputError(REST_LOST, where=f"{name}:{number + 1}", remedy="fetch or compress the file again")
        if damage is None:
            raise broken from error
        damage.append(broken)
    except OSError as error:
        raise unreadable(error, name) from error


def _check_format(expected: Format, lines: _Lines, name: str) -> None:
    """Raise ``InputError`` if the first line, blank ones and comments aside, is of trees or CoNLL-U, not ``expected``.

    Read as text, its brackets and columns would become words. Trees whose labels are not in capitals are not
    recognised.
    """
    contents = ((number, line.strip()) for number, line in lines)
    number, content = next((one for one in contents if one[1] and not one[1].startswith(b"#")), (0, b""))
    for format, pattern in (("brackets", _TREE), ("conllu", _TOKEN)):
        if format != expected and pattern.match(content):
            or_text = ', or format = "text" if it is meant so' if expected == "text" else ""
            found = f"looks like {format}, not like {expected}"
            raise InputError(found, where=f"{name}:{number}", remedy=f'give format = "{format}"{or_text}')


def _check_no_table(lines: _Lines, name: str) -> None:
    """Raise ``InputError`` if the first lines all have equally many tabs: a table, whose cells would become words.

    It looks no further than to the first line that cannot be a row.
    """
    rows: list[tuple[int, int]] = []
    for number, line in lines:
        if content := line.strip():
            rows.append((number, content.count(b"\t")))
            if not rows[-1][1] or rows[-1][1] != rows[0][1]:
                return
            if len(rows) == _ROWS:
                break
    if len(rows) > 2:
        remedy = 'treelm surprisal reads tables with --layout table; or give format = "text"'
        raise InputError(f"looks like a table of {rows[0][1] + 1} columns", where=f"{name}:{rows[0][0]}", remedy=remedy)


def _text(lines: _Lines, *, blank_lines: bool) -> _Pieces:
    """Each line; blank ones too if they are asked for."""
    is_after_blank = False
    for number, line in lines:
        is_blank = not line.strip()
        if blank_lines or not is_blank:
            yield number, line, is_after_blank and not is_blank
        is_after_blank = is_blank


def _conllu(lines: _Lines) -> _Pieces:
    """The lines between two blank lines: a sentence of CoNLL-U."""
    for is_blank, group in groupby(lines, key=lambda numbered: not numbered[1].strip()):
        if not is_blank:
            numbers, held = zip(*group, strict=True)
            yield numbers[0], b"\n".join(held), any(map(_NEW_DOCUMENT.match, held))


def _brackets(lines: _Lines, treebank: Treebank, left_out: Counter[str], *, blank_lines: bool) -> _Pieces:
    """The lines up to the one that closes all brackets: the rule of ``treelm.trees.brackets``; no lines of markup.

    A line that starts with ``(``, no further right than the file's first tree, begins a new tree, unless the first tree
    has such lines inside. So one missing bracket costs one tree.
    """
    held: list[tuple[int, bytes]] = []
    depth = 0
    margin: int | None = None  # column of the first tree
    free_layout: bool | None = None  # whether trees have lines at the margin inside; None: not known yet
    is_after_blank = False

    def is_at_margin(line: bytes) -> bool:
        start = line.lstrip()
        return start.startswith(b"(") and len(line) - len(start) <= (margin or 0)

    def take() -> tuple[int, bytes, bool]:
        nonlocal held, depth, is_after_blank
        piece = held[0][0], b"\n".join(line for _, line in held), is_after_blank
        is_after_blank = not held[-1][1].strip()
        held, depth = [], 0
        return piece

    source: Iterator[tuple[int, bytes]] = lines
    while True:
        for number, line in source:
            if not held and not line.strip():  # a blank line inside a tree counts, so that lines keep their numbers
                if blank_lines:
                    yield number, line, False
                is_after_blank = True
                continue
            if not held and treebank.markup.match(line):
                left_out["lines of markup"] += 1
                continue
            if margin is None and line.lstrip().startswith(b"("):
                margin = len(line) - len(line.lstrip())
            if held and free_layout is False and is_at_margin(line):
                yield take()
            held.append((number, line))
            depth += line.count(b"(") - line.count(b")")
            if depth <= 0:
                if free_layout is None and margin is not None:
                    free_layout = any(is_at_margin(inner) for _, inner in held[1:])
                yield take()
            elif free_layout is None and len(held) > _MAX_LINES_OF_FIRST_TREE:
                break
        if held and free_layout is False:
            yield take()
        if not held:
            return
        # A tree never closed: read on as if every line at the margin began a tree.
        source, held, depth, free_layout = chain(held, source), [], 0, False
