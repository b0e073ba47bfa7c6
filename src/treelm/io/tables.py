"""Tables: read from CSV, TSV and workbooks of Excel; results as named columns that become files and data frames."""

from __future__ import annotations

import csv
import io
import math
import re
import warnings
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, datetime, time
from importlib import import_module
from pathlib import Path
from typing import IO, Any, NamedTuple
from zipfile import BadZipFile

from treelm.errors import InputError
from treelm.io.atomic import open_atomic
from treelm.io.files import read_bytes, read_text

Cell = str | int | float | None
Row = Sequence[Cell]
MISSING = "NA"  # what R and pandas both read as missing

SEPARATORS = {".tsv": "\t", ".txt": "\t", ".csv": ",", "": "\t"}
"""Between the cells of a text, by the ending of its name; streams and devices have none."""
_QUOTE = '"'
_SPECIAL = re.compile(r'["\t\r\n]')
_INTEGER = re.compile(r"-?(?:0|[1-9]\d{0,17})")
_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][-+]?\d+)?")
_MOST_EXCEL_ROWS = 1_048_576  # its header included
EXTRA = "pip install 'treelm[tables]'"


@dataclass(frozen=True, kw_only=True)
class Table:
    """Rows under the names of columns. ``None`` is a missing value, and so is a number that is none (nan)."""

    names: tuple[str, ...]
    rows: Sequence[Row]

    def columns(self) -> dict[str, list[Cell]]:
        """The cells of every column, by its name."""
        return {name: [row[place] for row in self.rows] for place, name in enumerate(self.names)}

    def to_frame(self, backend: str = "pandas") -> Any:
        """Return a data frame of pandas, or of another library: polars, pyarrow.

        Raises ``InputError`` if the library is missing, or is none of these.
        """
        return to_frame(self.columns(), backend)


def to_frame(columns: Mapping[str, Sequence[Cell]], backend: str = "pandas") -> Any:
    """Make a data frame of columns (see ``Table.to_frame``). Raises ``InputError`` for a library of another name."""
    if backend not in ("pandas", "polars", "pyarrow"):
        raise InputError(f"no data frames of {backend!r}", remedy="choose from: pandas, polars, pyarrow")
    narwhals = import_extra("narwhals")
    import_extra(backend)
    return narwhals.from_dict(
        {name: list(map(_known, cells)) for name, cells in columns.items()}, backend=backend
    ).to_native()


def import_extra(library: str) -> Any:
    """Import a library of the extra ``tables``. Raises ``InputError`` that names the extra if it is missing."""
    try:
        return import_module(library)
    except ModuleNotFoundError as error:
        if error.name != library:
            raise
        raise InputError(f"the library {library} is missing", remedy=EXTRA) from None


def deduplicate_names(names: Sequence[str], *, taken: Sequence[str]) -> list[str]:
    """Name a table's own columns beside those that are taken: own_NAME if NAME is one of these."""
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


def joined(tables: Iterable[Table]) -> Table:
    """The rows of several tables with the same columns."""
    tables = list(tables)
    return Table(names=tables[0].names, rows=[row for table in tables for row in table.rows])


def stacked(tables: Mapping[str, Table], name: str = "model") -> Table:
    """The rows of several tables one after the other, with a first column that says whose each is."""
    names = dict.fromkeys(column for table in tables.values() for column in table.names)
    rows = []
    for key, table in tables.items():
        places = [table.names.index(column) if column in table.names else None for column in names]
        rows += [(key, *(None if place is None else row[place] for place in places)) for row in table.rows]
    return Table(names=(name, *names), rows=rows)


def cell_text(cell: Cell) -> str:
    """Return a cell as it stands in a text: numbers that are not whole with six digits after the point."""
    if cell is None:
        return MISSING
    if isinstance(cell, float):
        return MISSING if math.isnan(cell) else f"{cell:.6f}"
    return cell if isinstance(cell, str) else str(int(cell))


def tsv_row(cells: Iterable[str], separator: str = "\t") -> str:
    """A line of the table, without its end. A cell with a quotation mark is quoted, and the mark doubled.

    That is how R and pandas read by default: to both, a lone ``"`` would open a cell that goes on over the next rows.

    >>> print(tsv_row(["1", 'a "big" dog'], ","))
    1,"a ""big"" dog"
    """
    return separator.join(_quoted(cell) if separator in cell or _SPECIAL.search(cell) else cell for cell in cells)


def _quoted(cell: str) -> str:
    return f'"{cell.replace(_QUOTE, _QUOTE * 2)}"'


def text_writer(stream: IO[str], names: Sequence[str], separator: str) -> Callable[[Iterable[Row]], None]:
    """Write the header into a stream, and give what writes rows after it, as they come."""
    print(tsv_row(names, separator), file=stream)

    def write(rows: Iterable[Row]) -> None:
        for row in rows:
            print(tsv_row(map(cell_text, row), separator), file=stream)

    return write


def _known(cell: Cell) -> Cell:
    return None if isinstance(cell, float) and math.isnan(cell) else cell


def typed(cells: Sequence[Cell]) -> list[Cell]:
    """Turn a column of texts, every one of which is written as a number or is missing, into numbers.

    >>> typed(["310", "NA", "295.5"]), typed(["007", "8"])
    ([310.0, None, 295.5], ['007', '8'])
    """
    given = [cell for cell in cells if cell not in (MISSING, "", None)]
    if not given or not all(isinstance(cell, str) and _NUMBER.fullmatch(cell) for cell in given):
        return list(map(_known, cells))
    kind = int if all(_INTEGER.fullmatch(str(cell)) for cell in given) else float
    return [None if cell in (MISSING, "", None) else kind(str(cell)) for cell in cells]


def _write_parquet(table: Table, stream: IO[bytes]) -> None:
    pyarrow, parquet = import_extra("pyarrow"), import_extra("pyarrow.parquet")
    parquet.write_table(pyarrow.table({name: typed(cells) for name, cells in table.columns().items()}), stream)


def _write_excel(table: Table, stream: IO[bytes]) -> None:
    if len(table.rows) >= _MOST_EXCEL_ROWS:
        found = f"{len(table.rows):,} rows, more than a sheet of Excel holds"
        raise InputError(found, remedy="write .parquet, .csv or .tsv")
    book = import_extra("openpyxl").Workbook(write_only=True)
    sheet = book.create_sheet("treelm")
    cell_of = import_extra("openpyxl.cell").WriteOnlyCell
    columns = [typed(cells) for cells in table.columns().values()]

    def cell(value: Cell) -> Any:
        if isinstance(value, float) and math.isinf(value):
            return str(value)  # there is no such number in Excel
        if not isinstance(value, str):
            return value
        made = cell_of(sheet, value=_without_controls(value))
        made.data_type = "s"  # a word such as =SUM is no formula
        return made

    sheet.append([cell(name) for name in table.names])
    for row in zip(*columns, strict=True):
        sheet.append([cell(value) for value in row])
    book.save(stream)


def _without_controls(text: str) -> str:
    return "".join(character if character >= " " or character in "\t\n" else "\ufffd" for character in text)


_BINARY: Mapping[str, tuple[str, Callable[[Table, IO[bytes]], None]]] = {
    ".parquet": ("pyarrow", _write_parquet),
    ".xlsx": ("openpyxl", _write_excel),
}
"""Files that are written whole, by the ending of their name: the library that does it, and how."""


def is_binary(path: str) -> bool:
    """Tell whether a table of this name is a file that is written whole, such as one of Excel."""
    return Path(path).suffix.lower() in _BINARY


def check_table_name(path: str) -> None:
    """Raise ``InputError`` for the name of a file that no table can be written into, before any work is done."""
    suffix = Path(path).suffix.lower()
    if suffix in _BINARY:
        import_extra(_BINARY[suffix][0])
    elif suffix not in SEPARATORS:
        remedy = f"end its name in {', '.join(filter(None, (*SEPARATORS, *_BINARY)))}"
        raise InputError(f"cannot write a table into a file ending in {suffix}", where=path, remedy=remedy)


@contextmanager
def binary_table(path: str, names: Sequence[str]) -> Iterator[Callable[[Iterable[Row]], None]]:
    """Give what takes rows; at the end they are written into a file that appears when it is complete."""
    rows: list[Row] = []
    yield rows.extend
    with open_atomic(Path(path)) as stream:
        _BINARY[Path(path).suffix.lower()][1](Table(names=tuple(names), rows=rows), stream)


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
