import io
import math
from contextlib import suppress
from datetime import datetime
from pathlib import Path

import openpyxl
import pandas
import pytest

from treelm.errors import InputError
from treelm.io.tables import (
    binary_table,
    read_rows,
    read_table,
    text_writer,
    typed,
)

NAMES = ("word", "bits", "count", "item", "rt")
ROWS = [
    ("=SUM(A1)", 1.5, 2, "007", "310"),
    ("NA", math.inf, None, "8", "NA"),
    ('a "b"\x01', math.nan, 3, "9", "295.5"),
]


def frame(rows: list[tuple[object, ...]]) -> pandas.DataFrame:
    return pandas.DataFrame(rows, columns=NAMES).astype({"count": "Int64"})


def test_a_text_has_six_digits_and_names_what_is_missing() -> None:
    stream = io.StringIO()
    text_writer(stream, NAMES, ",")(frame(ROWS))
    assert stream.getvalue().splitlines()[1:] == [
        "=SUM(A1),1.500000,2,007,310",
        "NA,inf,NA,8,NA",
        '"a ""b""\x01",NA,3,9,295.5',
    ]


def test_a_sheet_of_excel_has_numbers_and_no_formula(tmp_path: Path) -> None:
    with binary_table(str(tmp_path / "x.xlsx"), NAMES) as write:
        write(frame(ROWS[:2]))
        assert not (tmp_path / "x.xlsx").exists()
        write(frame(ROWS[2:]))
    sheet = openpyxl.load_workbook(tmp_path / "x.xlsx").active
    assert sheet is not None
    cells = [[cell.value for cell in row] for row in sheet.iter_rows()]
    assert cells == [
        list(NAMES),
        ["=SUM(A1)", 1.5, 2, "007", 310],
        ["NA", "inf", None, "8", None],
        ['a "b"\ufffd', None, 3, "9", 295.5],
    ]
    assert sheet.cell(2, 1).data_type == "s"


def test_a_parquet_file_has_the_types_of_its_columns(tmp_path: Path) -> None:
    with binary_table(str(tmp_path / "x.parquet"), NAMES) as write:
        write(frame(ROWS))
    found = pandas.read_parquet(tmp_path / "x.parquet")
    assert found["word"].tolist() == [row[0] for row in ROWS]
    assert found["bits"].tolist()[:2] == [1.5, math.inf]
    assert found["rt"].isna().tolist() == [False, True, False]
    assert found["item"].tolist() == ["007", "8", "9"]


def test_what_is_written_as_a_number_is_one_and_leading_zeros_are_kept() -> None:
    def typed_cells(*cells: str | float | None) -> list[object]:
        return [None if cell is pandas.NA else cell for cell in typed(pandas.Series(cells, dtype=object))]

    assert typed_cells("1", "-2", "") == [1, -2, None]
    assert typed_cells("1e3", "0.5") == [1000.0, 0.5]
    assert typed_cells("1,5", "2") == ["1,5", "2"]
    assert typed_cells("007", "8") == ["007", "8"]
    assert typed_cells("NA", "NA") == ["NA", "NA"]


@pytest.mark.parametrize(
    ("header", "names"),
    [
        ("a;b;c", ("a", "b", "c")),
        ("a,b;c,d", ("a", "b;c", "d")),
        ('"a,b,c";d', ("a,b,c", "d")),
        ("a,b;c\td", ("a,b;c", "d")),
        ("a", ("a",)),
    ],
)
def test_the_header_says_what_stands_between_cells(header: str, names: tuple[str, ...]) -> None:
    assert read_rows(f"{header}\n", "in.csv")[0] == names


def test_a_first_line_may_say_what_stands_between_cells() -> None:
    table = read_rows("sep=;\na,b;c\n1,5;2\n", "in.csv")
    assert table.names == ("a,b", "c")
    assert list(table.rows) == [("in.csv:3", {"a,b": "1,5", "c": "2"})]
    assert read_rows("sep=;,b\n", "in.csv").names == ("sep=;", "b")
    assert list(read_rows('"SEP=;"\r\nword;rt\r\nthe;1\r\n', "in.csv").rows) == [
        ("in.csv:3", {"word": "the", "rt": "1"})
    ]


def test_what_is_written_for_excel_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "x.xlsx"
    rows = [("1", 'a "b"', "2.5"), ("NA", "=SUM", "300"), ("007", ",", "NA"), ("1", "é;", "TRUE")]
    with binary_table(str(path), ("id", "word", "rt")) as write:
        write(pandas.DataFrame(rows, columns=["id", "word", "rt"]))
    table = read_table(path)
    assert table.names == ("id", "word", "rt")
    assert list(table.rows) == [
        (f"{path}:{line}", dict(zip(table.names, row, strict=True))) for line, row in enumerate(rows, start=2)
    ]
    assert not table.has_decimal_commas


def test_cells_of_a_sheet_are_as_they_would_stand_in_a_text(tmp_path: Path) -> None:
    def rows_of(*rows: list[object]) -> list[tuple[str, ...]]:
        book = openpyxl.Workbook()
        for row in rows:
            book.active.append(row)
        book.save(tmp_path / "x.xlsx")
        return [(where.rpartition(":")[2], *cells.values()) for where, cells in read_table(tmp_path / "x.xlsx").rows]

    found = rows_of(["word", "rt", None], ["a", 310.0], ["b", 0.5, None], [None], [True, datetime(2026, 1, 2)])
    assert found == [("2", "a", "310"), ("3", "b", "0.5"), ("5", "TRUE", "2026-01-02T00:00:00")]
    assert rows_of([None], ["word", "rt"], [None], ["a, b", 1]) == [("4", "a, b", "1")]
    with pytest.raises(InputError, match=r"x.xlsx:2: 3 cells under 2 columns"):
        rows_of(["word", "rt"], ["a", 1, "more"])
    with pytest.raises(InputError, match=r"x.xlsx:3: a cell with a line break: 'b\\nc'; write it on one line"):
        rows_of(["word", "rt"], ["a", 1], ["b\nc", 1])


def test_damage_to_a_workbook_is_a_user_error_wherever_it_is(tmp_path: Path) -> None:
    with binary_table(str(tmp_path / "x.xlsx"), NAMES) as write:
        write(frame(ROWS))
    whole = (tmp_path / "x.xlsx").read_bytes()
    for start in range(0, len(whole), 97):
        (tmp_path / "x.xlsx").write_bytes(whole[:start] + bytes(40) + whole[start + 40 :])
        with suppress(InputError):  # anything else would be a fault of ours
            assert len(read_table(tmp_path / "x.xlsx").names) in (0, len(NAMES))
