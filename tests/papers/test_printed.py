"""The numbers in the papers' tables: a list made by hand, against the texts and against the declarations."""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from treelm.papers.declaration import Number, load_paper

TEXTS = Path(__file__).parents[2].parent / "shared" / "papers"
LISTED: list[dict[str, Any]] = tomllib.loads(Path(__file__).with_name("printed.toml").read_text("utf-8"))["tables"]
PAPERS = sorted({table["paper"] for table in LISTED})


def numbers_of(cell: Any) -> list[float]:
    return [float(part) for part in str(cell).split("±") if part]


@pytest.mark.parametrize("table", LISTED, ids=lambda table: f"{table['paper']}, {table['table']}")
def test_printed_numbers_stand_in_the_texts(table: dict[str, Any]) -> None:
    """A line of the text begins with the name of the row and goes on with its numbers, in order."""
    path = TEXTS / f"{table['paper']}.txt"
    if not path.exists():
        pytest.skip("needs ../shared/papers")
    lines = path.read_text("utf-8").replace(r"\rightarrow", "").splitlines()
    for name, *cells in table["rows"]:
        letters = re.sub(r"[\W_]", "", table.get("garbled", {}).get(name, name))
        begins = re.compile(r"[\W_]*" + r"[\W_]*".join(letters))
        wanted = [number for cell in cells for number in numbers_of(cell)]
        rests = [line[found.end() :] for line in lines if (found := begins.match(line))]
        assert any(_in_order(wanted, map(float, re.findall(r"\d+(?:\.\d+)?", rest))) for rest in rests), name


def _in_order(wanted: list[float], found: Iterator[float]) -> bool:
    return all(number in found for number in wanted)


@pytest.mark.parametrize("paper", PAPERS)
def test_declarations_have_every_printed_number_and_no_other(paper: str) -> None:
    """By the paper's number of the table, its columns, and its rows, in its order."""
    listed, declared = {}, {}
    for table in LISTED:
        if table["paper"] == paper:
            rows = {name: [numbers_of(cell) for cell in cells] for name, *cells in table["rows"]}
            listed[table["table"]] = (table["columns"], rows)
    for one in load_paper(paper):
        if one.name.startswith("Table"):
            columns = [column.name for column in one.columns if not column.added]
            printed = {row.name: one.printed(row) for row in one.rows if not row.added}
            rows = {name: [_declared(cells.get(column, "")) for column in columns] for name, cells in printed.items()}
            declared[one.name] = (columns, rows)
    assert [*declared] == [*listed]
    for name, (columns, rows) in listed.items():
        assert declared[name] == (columns, rows), name
        assert [*declared[name][1]] == [*rows], name


def _declared(text: str) -> list[float]:
    number = Number.parse(text)
    if number is None:
        return []
    scale = 1e6 if number.unit else 1.0
    return [number.value / scale, *([] if number.spread is None else [number.spread])]
