"""Rows of tables that people give: CSV, TSV and workbooks of Excel, with a header."""

from __future__ import annotations

import csv
import io
import re
import warnings
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import date, datetime, time
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import BadZipFile

from treelm.corpora.inputs import read_bytes, read_text
from treelm.corpora.tables import import_extra
from treelm.errors import InputError

TABLES = (".csv", ".tsv", ".xlsx")
"""Endings of the names of tables, before a .gz of those that are text."""
_EXCEL = ".xlsx"
DECIMAL_COMMA = re.compile(r"[-+]?\d*,\d+(?:[eE][-+]?\d+)?")
"""A number with a decimal comma."""
_SEPARATOR_LINE = re.compile(r'"?sep=(.)"?\r?\n', re.IGNORECASE)
"""What Excel reads, and some programs write, before the header."""
_LINE_BREAK = re.compile(r"[\r\n]")
"""What cells of a workbook may hold, and a row of text does not."""
_NO_WORKBOOK: tuple[type[Exception], ...] = (
    *(BadZipFile, zlib.error, KeyError, IndexError, ValueError, TypeError, AttributeError),
    *(OSError, RuntimeError, SyntaxError),
)
"""What openpyxl raises for a file that is damaged, locked or something else; of XML, a SyntaxError."""


class TableRows(NamedTuple):
    """A table as it is read."""

    names: tuple[str, ...]
    """The columns."""
    rows: Iterator[tuple[str, dict[str, str]]]
    """For each row its place (``file:line``) and its cells by name."""
    has_decimal_commas: bool = False
    """Whether commas in numbers are decimal ones: semicolons set cells apart, as spreadsheets do where that is so."""


def read_table(path: str | Path) -> TableRows:
    """Read a table from a file: text as ``read_rows`` does, of a workbook of Excel the first sheet.

    Raises ``InputError`` as ``read_rows`` does, and for a file that cannot be read.
    """
    return read_rows(table_text(path), str(path))


def table_text(path: str | Path) -> str:
    """The text of a file with a table; of a workbook, that of its first sheet with tabs between cells."""
    return _sheet_text(Path(path)) if Path(path).suffix.lower() == _EXCEL else read_text(path)


def read_rows(text: str, source: str) -> TableRows:
    """Read a table from its text.

    Cells are set apart by what a first line such as ``sep=;`` says; else by tabs if there is one in the header, else by
    what it has more of, commas or semicolons; and quoted as R and pandas do. Raises ``InputError`` for a column name
    that stands twice, a row with other cells than the header has, and a cell that goes on over several lines: a lone
    quotation mark would swallow rows.

    >>> table = read_rows("word;rt\\nthe;301,5\\n", "times.csv")
    >>> table.names, list(table.rows), table.has_decimal_commas
    (('word', 'rt'), [('times.csv:2', {'word': 'the', 'rt': '301,5'})], True)
    """
    said = _SEPARATOR_LINE.match(text)
    separator = said[1] if said else max(",;\t", key=_parts_of(text.lstrip("\n").partition("\n")[0]))
    rows = _rows(text[said.end() - 1 :] if said else text, source, separator)  # its line stays, empty
    where, names = next(rows, (f"{source}:1", []))
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise InputError(f"two columns of the name {twice[0]!r}", where=where, remedy="rename or remove one")
    return TableRows(tuple(names), _by_name(rows, names), has_decimal_commas=separator == ";")


def _parts_of(header: str) -> Callable[[str], tuple[bool, int]]:
    """How much a character is one between cells: a tab always, others by their number outside quotation marks."""
    outside = re.sub(r'"[^"]*"', "", header)
    return lambda separator: (separator == "\t" and separator in outside, outside.count(separator))


def _by_name(rows: Iterator[tuple[str, list[str]]], names: list[str]) -> Iterator[tuple[str, dict[str, str]]]:
    for where, row in rows:
        if len(row) != len(names):
            found = f"{len(row)} cells under {len(names)} columns"
            raise InputError(found, where=where, remedy="give every row as many cells as the header has")
        yield where, dict(zip(names, row, strict=True))


def _rows(text: str, source: str, separator: str) -> Iterator[tuple[str, list[str]]]:
    """Rows that are not empty."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    while True:
        line = reader.line_num + 1
        try:
            row = next(reader, None)
        except csv.Error as error:
            remedy = "quote cells that hold quotation marks, and double the marks inside"
            raise InputError(f"not a table ({error})", where=f"{source}:{line}", remedy=remedy) from None
        if row is None:
            return
        if reader.line_num > line:
            found = f"a quoted cell that goes on to line {reader.line_num}"
            remedy = 'double quotation marks inside quoted cells; a cell that is one mark is written """"'
            raise InputError(found, where=f"{source}:{line}", remedy=remedy)
        if row:
            yield f"{source}:{line}", row


def with_point(cell: str) -> str:
    """A cell with a decimal point for a decimal comma."""
    return cell.replace(",", ".") if DECIMAL_COMMA.fullmatch(cell) else cell


def _sheet_text(path: Path) -> str:
    """The first sheet of a workbook with tabs between its cells, a line a row; of formulas the saved values."""
    content = read_bytes(path, remedy="check the path")
    openpyxl = import_extra("openpyxl")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of styles and validations, which say nothing about cells
            sheet = openpyxl.load_workbook(io.BytesIO(content), read_only=True, data_only=True).worksheets[0]
            sheet.reset_dimensions()  # which some programs write wrongly
            rows = [list(map(_cell_text, row)) for row in sheet.iter_rows(values_only=True)]
    except _NO_WORKBOOK as error:
        remedy = "save it in Excel as .xlsx, or as CSV UTF-8"
        raise InputError(f"no workbook of Excel ({type(error).__name__})", where=str(path), remedy=remedy) from None
    for line, row in enumerate(rows, start=1):
        if broken := next((cell for cell in row if _LINE_BREAK.search(cell)), None):
            remedy = "write it on one line"
            raise InputError(f"a cell with a line break: {broken[:40]!r}", where=f"{path}:{line}", remedy=remedy)
    sizes = [max((place for place, cell in enumerate(row, start=1) if cell), default=0) for row in rows]
    num_columns = next(filter(None, sizes), 0)  # of the header
    text = io.StringIO(newline="")
    write = csv.writer(text, delimiter="\t", lineterminator="\n").writerow
    for row, size in zip(rows, sizes, strict=True):
        write([*row[: max(num_columns, size)], *[""] * (num_columns - len(row))] if size else [])
    return text.getvalue()


def _cell_text(value: Any) -> str:
    """A cell as it would stand in a text."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return value.isoformat() if isinstance(value, date | datetime | time) else str(value)
