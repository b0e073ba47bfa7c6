"""Some of the files that are to cost time and memory; with ``TREELM_COSTLY=all`` in the environment, all of them."""

import os
from pathlib import Path

import pytest

from tests.fuzz.costly import GROWN, WORKBOOKS, cases, fault_of, workbook
from tests.fuzz.harness import Reader
from treelm.errors import InputError
from treelm.io.tables import read_table

SLOW = (
    "a row far below",
    "a row below all",
    "strings as many as may be",
    "rows far to the right",
    "many strings",
    "a cell of 300 MB",
    "deep elements",
    "deep brackets",
)
TRIED = {
    *(f"brackets: {how}" for how in GROWN if how not in SLOW),
    *(f"stimulus table: {how}" for how in ("a word of 2 MB", "escape sequences", "a bomb of one word", "packed by xz")),
    *(f"config of an old run: {how}" for how in ("a number of a million digits", "deep objects", "a word of 2 MB")),
    *(f"weights: {how}" for how in ("a word of 2 MB", "a number of a million digits", "deep objects")),
    *(f"workbook: {how}" for how in WORKBOOKS if how not in SLOW),
}
ALL = {f"{reader.name}: {how}": (reader, how) for reader, how in cases()}
CHOSEN = ALL if os.environ.get("TREELM_COSTLY") == "all" else {name: ALL[name] for name in sorted(TRIED)}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="limits are those of a process of its own")
@pytest.mark.parametrize(("reader", "how"), CHOSEN.values(), ids=CHOSEN)
def test_a_file_that_is_to_cost_much_is_read_or_refused_in_one_line(reader: Reader, how: str, tmp_path: Path) -> None:
    assert not fault_of(reader, how, tmp_path)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("a row far below", r"cells far beyond what a workbook of [\d,]+ bytes holds, in row 1,048,577; remove"),
        ("rows far to the right", r"cells far beyond what a workbook"),
        ("many strings", r"[\d,]+ bytes that become [\d,]+ or more when unpacked; unpack it first"),
    ],
)
def test_a_workbook_that_is_more_than_its_size_can_mean_is_told(how: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "t.xlsx").write_bytes(WORKBOOKS[how]())
    with pytest.raises(InputError, match=rf"t\.xlsx: {message}"):
        read_table(tmp_path / "t.xlsx")


def test_rows_and_cells_that_are_left_out_are_empty(tmp_path: Path) -> None:
    cells = [[("A1", "word"), ("B1", "rt")], [("B3", "301")], [("A4", "dogs"), ("D4", "")]]
    rows = ["".join(f'<c r="{place}" t="inlineStr"><is><t>{text}</t></is></c>' for place, text in row) for row in cells]
    (tmp_path / "t.xlsx").write_bytes(
        workbook("".join(f'<row r="{n}">{row}</row>' for n, row in zip((1, 3, 4), rows, strict=True)))
    )
    found = [tuple(row.values()) for _, row in read_table(tmp_path / "t.xlsx").rows]
    assert found == [("", "301"), ("dogs", "")]
