import io
import math
from contextlib import suppress
from datetime import datetime
from pathlib import Path

import openpyxl
import pandas
import pytest

from treelm.errors import InputError
from treelm.io.tables import read_rows, read_table, text_writer

NAMES = ("word", "bits", "count", "item", "word_probability_lag1")
ROWS = [
    ("=SUM(A1)", 1.5, 2, "007", 0.25),
    ("NA", math.inf, None, "8", math.nan),
    ('a "b"\x01', math.nan, 3, "9", 1 / 3e8),
]


def frame(rows: list[tuple[object, ...]]) -> pandas.DataFrame:
    return pandas.DataFrame(rows, columns=NAMES).astype({"count": "Int64"})


def test_a_text_has_six_digits_significant_ones_of_probabilities_and_names_what_is_missing() -> None:
    stream = io.StringIO()
    text_writer(stream, NAMES, ",")(frame(ROWS))
    assert stream.getvalue().splitlines()[1:] == [
        "=SUM(A1),1.500000,2,007,0.25",
        "NA,inf,NA,8,NA",
        '"a ""b""\x01",NA,3,9,3.33333e-09',
    ]


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
    with pytest.raises(InputError, match=r"x.xlsx:3: a cell that goes on to line 4"):
        rows_of(["word", "rt"], ["a", 1], ["b\nc", 1])


def test_the_first_visible_sheet_is_read(tmp_path: Path) -> None:
    book = openpyxl.Workbook()
    for state in ("veryHidden", "visible", "visible"):
        book.create_sheet().append([f"{state} {len(book.worksheets)}"])
        book.worksheets[-1].sheet_state = state
    book.worksheets[0].sheet_state = "hidden"
    book.save(tmp_path / "x.xlsx")
    assert read_table(tmp_path / "x.xlsx").names == ("visible 3",)


def test_damage_to_a_workbook_is_a_user_error_wherever_it_is(tmp_path: Path) -> None:
    frame(ROWS).replace("\x01", "", regex=True).to_excel(tmp_path / "x.xlsx", index=False)
    whole = (tmp_path / "x.xlsx").read_bytes()
    for start in range(0, len(whole), 97):
        (tmp_path / "x.xlsx").write_bytes(whole[:start] + bytes(40) + whole[start + 40 :])
        with suppress(InputError):  # anything else would be a fault of ours
            assert len(read_table(tmp_path / "x.xlsx").names) in (0, len(NAMES))
