import io
import math
import sys
from pathlib import Path

import openpyxl
import pandas
import polars
import pytest

from treelm.corpora.inputs import read_rows
from treelm.corpora.tables import Table, binary_table, cell_text, check_table_name, text_writer, typed
from treelm.errors import InputError

NAMES = ("word", "bits", "count", "item", "rt")
ROWS = [
    ("=SUM(A1)", 1.5, 2, "007", "310"),
    ("NA", math.inf, None, "8", "NA"),
    ('a "b"\x01', math.nan, 3, "9", "295.5"),
]


def test_a_text_has_six_digits_and_names_what_is_missing() -> None:
    stream = io.StringIO()
    text_writer(stream, NAMES, ",")(ROWS)
    assert stream.getvalue().splitlines()[1:] == [
        "=SUM(A1),1.500000,2,007,310",
        "NA,inf,NA,8,NA",
        '"a ""b""\x01",NA,3,9,295.5',
    ]
    assert cell_text(True) == "1"


def test_a_sheet_of_excel_has_numbers_and_no_formula(tmp_path: Path) -> None:
    with binary_table(str(tmp_path / "x.xlsx"), NAMES) as write:
        write(ROWS[:2])
        assert not (tmp_path / "x.xlsx").exists()
        write(ROWS[2:])
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
        write(ROWS)
    found = pandas.read_parquet(tmp_path / "x.parquet")
    assert found["word"].tolist() == [row[0] for row in ROWS]
    assert found["bits"].tolist()[:2] == [1.5, math.inf]
    assert found["rt"].isna().tolist() == [False, True, False]
    assert found["item"].tolist() == ["007", "8", "9"]


def test_frames_of_both_libraries() -> None:
    table = Table(names=NAMES, rows=ROWS)
    frame = table.to_frame()
    assert isinstance(frame, pandas.DataFrame)
    assert frame["bits"].isna().tolist() == [False, False, True]
    assert isinstance(table.to_frame("polars"), polars.DataFrame)
    assert table.to_frame("polars")["count"].to_list() == [2, None, 3]
    with pytest.raises(InputError, match="no data frames of 'excel'"):
        table.to_frame("excel")


def test_what_is_written_as_a_number_is_one_and_leading_zeros_are_kept() -> None:
    assert typed(["1", "-2", ""]) == [1, -2, None]
    assert typed(["1e3", "0.5"]) == [1000.0, 0.5]
    assert typed(["1,5", "2"]) == ["1,5", "2"]
    assert typed(["NA", "NA"]) == ["NA", "NA"]
    assert typed([1.5, math.nan]) == [1.5, None]


@pytest.mark.parametrize("name", ["x.xlsx", "x.parquet"])
def test_without_its_library_a_file_is_refused_by_its_name(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openpyxl" if name.endswith("x") else "pyarrow", None)
    with pytest.raises(InputError, match=r"treelm\[tables\]"):
        check_table_name(name)


def test_a_failed_table_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "x.xlsx"
    path.write_text("before")

    def fail() -> None:
        with binary_table(str(path), NAMES) as write:
            write(ROWS)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert path.read_text() == "before"


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
