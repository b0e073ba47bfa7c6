"""Files that are to cost time and memory: every reader by every way of growing, each in a process of its own.

Limits are 10 seconds of processor time and 500 MB.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import re
import resource
import signal
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.fuzz import harness
from tests.fuzz.harness import Reader, check
from tests.fuzz.readers import READERS
from treelm.io.tables import read_table

MEMORY = 500 << 20
_MANY = 1 << 20
_NUMBER, _WORD = re.compile(rb"[0-9]+"), re.compile(rb"[A-Za-z]{2,}")


def _number(content: bytes) -> bytes:
    found = _NUMBER.search(content)
    return content + b"9" * _MANY if found is None else content[: found.start()] + b"9" * _MANY + content[found.end() :]


def _in_word(content: bytes, inserted: bytes) -> bytes:
    """Something behind a word in the middle."""
    places = [match.end() for match in _WORD.finditer(content)] or [len(content)]
    place = places[len(places) // 2]
    return content[:place] + inserted + content[place:]


_OFFICE = "http://schemas.openxmlformats.org"
_OF_SHEETS = "application/vnd.openxmlformats-officedocument.spreadsheetml"
_TYPES = f"""<Types xmlns="{_OFFICE}/package/2006/content-types">
<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>
<Override PartName="/xl/workbook.xml" ContentType="{_OF_SHEETS}.sheet.main+xml"/>
<Override PartName="/xl/sharedStrings.xml" ContentType="{_OF_SHEETS}.sharedStrings+xml"/></Types>"""
_BOOK = f"""<workbook xmlns="{_OFFICE}/spreadsheetml/2006/main" xmlns:r="{_OFFICE}/officeDocument/2006/relationships">
<sheets><sheet name="a" sheetId="1" r:id="rId1"/></sheets></workbook>"""


def _relation(kind: str, target: str) -> str:
    return f"""<Relationships xmlns="{_OFFICE}/package/2006/relationships"><Relationship Id="rId1"
    Type="{_OFFICE}/officeDocument/2006/relationships/{kind}" Target="{target}"/></Relationships>"""


def workbook(rows: str, *, shared: str = "", head: str = "") -> bytes:
    """A workbook of one sheet with rows of XML, and with a table of strings."""
    space = f'xmlns="{_OFFICE}/spreadsheetml/2006/main"'
    parts = {
        "[Content_Types].xml": _TYPES,
        "_rels/.rels": _relation("officeDocument", "xl/workbook.xml"),
        "xl/workbook.xml": _BOOK,
        "xl/_rels/workbook.xml.rels": _relation("worksheet", "worksheets/sheet1.xml"),
        "xl/sharedStrings.xml": f"<sst {space}>{shared}</sst>",
        "xl/worksheets/sheet1.xml": f"{head}<worksheet {space}><sheetData>{rows}</sheetData></worksheet>",
    }
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, part in parts.items():
            archive.writestr(zipfile.ZipInfo(name), part, zipfile.ZIP_DEFLATED)
    return content.getvalue()


def _cell(place: str, text: str = "1") -> str:
    return f'<c r="{place}" t="inlineStr"><is><t>{text}</t></is></c>'


_HEAD = f'<row r="1">{_cell("A1", "word")}</row>'
_LAUGHS = "".join(f'<!ENTITY a{n + 1} "{f"&a{n};" * 10}">' for n in range(12))
WORKBOOKS: dict[str, Callable[[], bytes]] = {
    "a row far below": lambda: workbook(f'{_HEAD}<row r="999999999999">{_cell("A2")}</row>'),
    "a row below all": lambda: workbook(f'{_HEAD}<row r="1048577">{_cell("A1048577")}</row>'),
    "a row that is no number": lambda: workbook(f'{_HEAD}<row r="{"9" * 5000}">{_cell("A2")}</row>'),
    "rows far to the right": lambda: workbook(
        _HEAD + "".join(f'<row r="{n}">{_cell(f"XFD{n}")}</row>' for n in range(2, 50_000))
    ),
    "a column without end": lambda: workbook(f'{_HEAD}<row r="2">{_cell("ZZZZZZZZ2")}</row>'),
    "a cell of 300 MB": lambda: workbook(f'{_HEAD}<row r="2">{_cell("A2", "x" * (300 * _MANY))}</row>'),
    "many strings": lambda: workbook(_HEAD, shared="<si/>" * (2 * _MANY)),
    "strings as many as may be": lambda: workbook(_HEAD, shared="<si/>" * (_MANY // 6)),
    "cells as many as may be": lambda: workbook(_HEAD + '<row r="2">' + "<c/>" * (_MANY // 6) + "</row>"),
    "entities of entities": lambda: workbook(
        f'<row r="1">{_cell("A1", "&a12;")}</row>', head=f'<!DOCTYPE x [<!ENTITY a0 "xxxxxxxxxx">{_LAUGHS}]>'
    ),
    "deep elements": lambda: workbook("<a>" * _MANY),
    "a cell of escape sequences": lambda: workbook(f'<row r="1">{_cell("A1", "a&#x9b;&#x202e;b&#10;c")}</row>'),
    "a string that is not there": lambda: workbook('<row r="1"><c r="A1" t="s"><v>99999999999</v></c></row>'),
    "a date without end": lambda: workbook('<row r="1"><c r="A1" t="d"><v>9999999999-99-99</v></c></row>'),
    "a number without end": lambda: workbook(f'<row r="1"><c r="A1"><v>{"9" * _MANY}</v></c></row>'),
    "an archive of nothing": lambda: b"PK\x05\x06" + bytes(18),
}
_WORKBOOK = Reader(
    name="workbook", file="t.xlsx", seeds=lambda: [workbook(_HEAD)], read=lambda path: list(read_table(path).rows)
)


GROWN: dict[str, Callable[[bytes], bytes]] = {
    "a word of 2 MB": lambda content: _in_word(content, b"x" * (2 * _MANY)),
    "a number of a million digits": _number,
    "deep brackets": lambda content: _in_word(content, b"(" * (_MANY // 2)) + b"[" * (_MANY // 2),
    "deep objects": lambda content: b'{"a":' * (_MANY // 8),
    "many lines": lambda content: b"\n".join(content.splitlines() * (_MANY // (len(content) + 1) + 1)),
    "blanks": lambda content: _in_word(content, b" \n" * _MANY),
    "escape sequences": lambda content: _in_word(content, b"\x1b]0;x\x07\x1b[2J\xe2\x80\xae" * 1000),
    "a bomb of one word": lambda content: gzip.compress(content + b"x" * (64 * _MANY), 9, mtime=0),
    "packed by xz": lambda content: lzma.compress(content + b"x" * _MANY),
    "packed by bzip2": lambda content: bz2.compress(content + b"x" * _MANY),
}


def cases() -> Iterator[tuple[Reader, str]]:
    """Every reader with every way of growing."""
    yield from ((reader, how) for reader in (*READERS, _WORKBOOK) for how in GROWN)
    yield from ((_WORKBOOK, how) for how in WORKBOOKS)


def fault_of(reader: Reader, how: str, folder: Path) -> str:
    """What is wrong with how a reader takes a grown file; nothing if it reads it, or refuses it in one line."""
    reader.company(folder)
    content = WORKBOOKS[how]() if how in WORKBOOKS else GROWN[how](reader.seeds()[0])
    return in_limits(lambda: check(reader, folder, content))


def in_limits(read: Callable[[], object]) -> str:
    """Call in a process of its own, with limits; what the fault was, if any."""
    told, child = os.pipe()
    process = os.fork()
    if process == 0:
        os.close(told)
        harness.MEMORY = MEMORY
        seconds = int(time.process_time()) + harness.CPU_SECONDS + 1  # where a library in C does not let go
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
        try:
            read()
        except BaseException as error:
            os.write(child, f"{type(error).__name__}: {error}"[:500].encode("utf-8", "replace"))
        os._exit(0)
    os.close(child)
    with os.fdopen(told, "rb") as stream:
        said = stream.read().decode("utf-8", "replace")
    status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    return said or (f"ended by {signal.Signals(-status).name}" if status < 0 else "")
