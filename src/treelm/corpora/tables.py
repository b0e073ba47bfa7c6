"""Tables (TSV, CSV) that other programs wrote, row by row, so that no row is lost."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterator

from treelm.errors import InputError


def read_rows(text: str, source: str) -> tuple[tuple[str, ...], Iterator[tuple[str, dict[str, str]]]]:
    """The names of the columns, and for each row its place (``file:line``) and its cells by name.

    Cells are set apart by tabs if there is one in the header, else by commas, and quoted as R and pandas do. Raises
    ``InputError`` for a column name that stands twice, a row with other cells than the header has, and a cell that goes
    on over several lines: a lone quotation mark would swallow rows.
    """
    rows = _rows(text, source, "\t" if "\t" in text.partition("\n")[0] else ",")
    where, names = next(rows, (f"{source}:1", []))
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise InputError(f"two columns of the name {twice[0]!r}", where=where, remedy="rename or remove one")
    return tuple(names), _named(rows, names)


def _named(rows: Iterator[tuple[str, list[str]]], names: list[str]) -> Iterator[tuple[str, dict[str, str]]]:
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
