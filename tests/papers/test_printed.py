"""The numbers in the papers' tables: a list made by hand, against the texts."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

TEXTS = Path(__file__).parents[2].parent / "shared" / "papers"
PRINTED: list[dict[str, Any]] = tomllib.loads(Path(__file__).with_name("printed.toml").read_text("utf-8"))["tables"]


def name_of(table: dict[str, Any]) -> str:
    return f"{table['paper']}, {table['table']}"


@pytest.mark.parametrize("table", PRINTED, ids=name_of)
def test_printed_numbers_stand_in_the_texts(table: dict[str, Any]) -> None:
    """A line of the text begins with the name of the row and goes on with its numbers, in order."""
    path = TEXTS / f"{table['paper']}.txt"
    if not path.exists():
        pytest.skip("needs ../shared/papers")
    lines = path.read_text("utf-8").replace(r"\rightarrow", "").splitlines()
    for name, *cells in table["rows"]:
        letters = re.sub(r"[\W_]", "", table.get("garbled", {}).get(name, name))
        begins = re.compile(r"[\W_]*" + r"[\W_]*".join(letters))
        wanted = [float(cell) for cell in cells if cell != ""]
        rests = [line[found.end() :] for line in lines if (found := begins.match(line))]
        assert any(_in_order(wanted, map(float, re.findall(r"\d+(?:\.\d+)?", rest))) for rest in rests), name


def _in_order(wanted: list[float], found: Any) -> bool:
    return all(number in found for number in wanted)
