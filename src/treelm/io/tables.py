"""Tables: read strictly from CSV, TSV and workbooks of Excel; data frames written as text."""

from __future__ import annotations

import csv
import io
import math
import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import date, datetime, time
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple
from zipfile import ZipFile

from treelm.errors import InputError, import_extra, is_out_of_memory
from treelm.io.files import MOST_ROWS, check_unpacked, read_bytes, read_text

if TYPE_CHECKING:
    import pandas as pd

Cell = str | int | float | None
Write = Callable[["pd.DataFrame"], None]  # appends the rows of a frame to a table
MISSING = "NA"  # what R and pandas both read as missing
PROBABILITY = "word_probability"  # how names of columns of probabilities begin

SEPARATORS = {".tsv": "\t", ".txt": "\t", ".csv": ",", "": "\t"}
"""Between the cells of a text, by the ending of its name; streams and devices have none."""
_SPECIAL = re.compile(r'["\t\r\n]')


def deduplicate_names(names: Sequence[str], *, taken: Sequence[str]) -> list[str]:
    """Rename columns whose names are taken: own_NAME if NAME is one of these."""
    used = {*taken, *names}
    found = []
    for name in names:
        free = name
        if name in taken:
            while free in used:
                free = f"own_{free}"
            used.add(free)
        found.append(free)
    return found


def tsv_row(cells: Iterable[str], separator: str = "\t") -> str:
    """A line of a table, without its end. A cell with a quotation mark is quoted, and the mark doubled.

    That is how R and pandas read by default: to both, a lone ``"`` would open a cell that goes on over the next rows.

    >>> print(tsv_row(["1", 'a "big" dog'], ","))
    1,"a ""big"" dog"
    """
    quoted = ((cell, '"' + cell.replace('"', '""') + '"') for cell in cells)
    return separator.join(safe if separator in cell or _SPECIAL.search(cell) else cell for cell, safe in quoted)


def check_table_name(path: str) -> None:
    """Raise ``InputError`` for the name of a file that no table can be written into, before any work is done."""
    suffix = Path(path).suffix.lower()
    if suffix not in SEPARATORS:
        remedy = f"end its name in {', '.join(filter(None, SEPARATORS))}"
        raise InputError(f"cannot write a table into a file ending in {suffix}", where=path, remedy=remedy)


def text_writer(stream: IO[str], names: Sequence[str], separator: str) -> Write:
    """Write the header of a table as text, and give a function that appends the rows of a data frame.

    Floats have six digits after the point; probabilities, which may be small, six significant ones. ``NA`` stands for
    what is missing.
    """
    print(tsv_row(names, separator), file=stream)

    def write(frame: pd.DataFrame) -> None:
        probabilities = [name for name in frame.select_dtypes("float") if name.startswith(PROBABILITY)]
        cells = {name: frame[name].map("{:.6g}".format, na_action="ignore") for name in probabilities}
        frame.assign(**cells).to_csv(
            stream, sep=separator, header=False, index=False, na_rep=MISSING, float_format="%.6f", lineterminator="\n"
        )

    return write


TABLES = (".csv", ".tsv", ".xlsx")  # endings of the names of tables, before a .gz of those that are text
_EXCEL = ".xlsx"
DECIMAL_COMMA = re.compile(r"[-+]?\d*,\d+(?:[eE][-+]?\d+)?")  # A number with a decimal comma
_SEPARATOR_LINE = re.compile(r'"?sep=(.)"?\r?\n', re.IGNORECASE)
"""What Excel reads, and some programs write, before the header."""


class TableRows(NamedTuple):
    """A table as it is read."""

    names: tuple[str, ...]  # the columns
    rows: Iterator[tuple[str, dict[str, str]]]  # for each row its place (``file:line``) and its cells by name
    has_decimal_commas: bool = False
    """Whether commas in numbers are decimal ones: semicolons set cells apart, as spreadsheets do where that is so."""


def read_table(path: str | Path) -> TableRows:
    """Read a table from a text file, or from the first visible sheet of a workbook of Excel.

    Raises ``InputError`` as ``read_rows`` does, and for a file that cannot be read.
    """
    return read_rows(table_text(path), str(path))


def table_text(path: str | Path, encoding: str | None = None) -> str:
    """The text of a file with a table; of a workbook, its first visible sheet with tabs between cells.

    ``encoding`` is that of ``read_text``. Raises ``InputError`` for a file that cannot be read, and for no workbook.
    """
    return _sheet_text(Path(path)) if Path(path).suffix.lower() == _EXCEL else read_text(path, encoding=encoding)


def read_rows(text: str, source: str, unreadable: list[InputError] | None = None) -> TableRows:
    """Read a table from its text.

    Cells are set apart by what a first line such as ``sep=;`` says; else by tabs if there is one in the header, else by
    what it has more of, commas or semicolons; and quoted as R and pandas do. Raises ``InputError`` for a column name
    that stands twice, a row with other cells than the header has (``unreadable`` collects these instead), and a cell
    that goes on over several lines: a lone quotation mark would swallow rows.

    >>> table = read_rows("word;rt\\nthe;301,5\\n", "times.csv")
    >>> table.names, list(table.rows), table.has_decimal_commas
    (('word', 'rt'), [('times.csv:2', {'word': 'the', 'rt': '301,5'})], True)
    """
    said = _SEPARATOR_LINE.match(text)
    header = re.sub(r'"[^"]*"', "", text.lstrip("\n").partition("\n")[0])  # what is outside quotation marks
    separator = said[1] if said else "\t" if "\t" in header else max(",;", key=header.count)
    rows = _rows(text[said.end() - 1 :] if said else text, source, separator)  # its line stays, empty
    where, names = next(rows, (f"{source}:1", []))
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise InputError(f"two columns of the name {twice[0]!r}", where=where, remedy="rename or remove one")

    def by_name() -> Iterator[tuple[str, dict[str, str]]]:
        for where, row in rows:
            if len(row) != len(names):
                found = f"{len(row)} cells under {len(names)} columns"
                remedy = "give every row as many cells as the header has (in R: row.names = FALSE)"
                error = InputError(found, where=where, remedy=remedy)
                if unreadable is None:
                    raise error
                unreadable.append(error)
            else:
                yield where, dict(zip(names, row, strict=True))

    return TableRows(tuple(names), by_name(), has_decimal_commas=separator == ";")


def _rows(text: str, source: str, separator: str) -> Iterator[tuple[str, list[str]]]:
    """Places and cells of rows that are not empty."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    line = 1
    try:
        for row in reader:
            if reader.line_num > line:
                found = f"a cell that goes on to line {reader.line_num}: it has a line break, or a lone quotation mark"
                remedy = 'replace line breaks; double the marks inside quoted cells; one alone is written """"'
                raise InputError(found, where=f"{source}:{line}", remedy=remedy)
            if row:
                yield f"{source}:{line}", row
            line += 1
    except csv.Error as error:
        remedy = "quote cells that hold quotation marks, and double the marks inside; in R, take write.csv"
        raise InputError(f"not a table ({error})", where=f"{source}:{line}", remedy=remedy) from None


def with_point(cell: str) -> str:
    """A cell with a decimal point for a decimal comma."""
    return cell.replace(",", ".") if DECIMAL_COMMA.fullmatch(cell) else cell


def _sheet_text(path: Path) -> str:
    """The first visible sheet of a workbook with tabs between its cells, a line a row; of formulas the saved values."""
    content = read_bytes(path, remedy="check the path", most=math.inf)
    openpyxl = import_extra("openpyxl", "tables")
    rows, num_cells = list[list[str]](), 0
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of styles and validations, which say nothing about cells
            size = sum(one.file_size for one in ZipFile(io.BytesIO(content)).infolist())
            check_unpacked(size, len(content), name=str(path))
            book = openpyxl.load_workbook(io.BytesIO(content), read_only=True, data_only=True)
            sheet = next(one for one in book.worksheets if one.sheet_state == "visible")
            sheet.reset_dimensions()  # which some programs write wrongly
            for cells in sheet.iter_rows(values_only=True):
                num_cells += len(cells)
                if len(rows) == MOST_ROWS or num_cells > MOST_ROWS + size:
                    found = f"cells far beyond what a workbook of {size:,} bytes holds, in row {len(rows) + 1:,}"
                    raise InputError(found, where=str(path), remedy="remove what stands far below, or far to the right")
                row = list(map(cell_text, cells))
                while row and not row[-1]:
                    row.pop()
                rows.append(row)
    except Exception as error:  # openpyxl raises many kinds for a file that is damaged, locked or something else
        if isinstance(error, InputError) or is_out_of_memory(error):
            raise
        remedy = "save it in Excel as .xlsx, or as CSV UTF-8"
        raise InputError(f"no workbook of Excel ({type(error).__name__})", where=str(path), remedy=remedy) from None
    num_columns = next(filter(None, map(len, rows)), 0)  # of the header
    text = io.StringIO(newline="")
    write = csv.writer(text, delimiter="\t", lineterminator="\n").writerow
    for row in rows:
        write([*row, *[""] * (num_columns - len(row))] if row else [])
    return text.getvalue()


def cell_text(value: Any) -> str:
    """The text of a cell of a workbook or a data frame, as it would stand in a text file.

    >>> cell_text(True), cell_text(1984.0), cell_text(0.5), cell_text(None)
    ('TRUE', '1984', '0.5', '')
    """
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return value.isoformat() if isinstance(value, date | datetime | time) else str(value)
