"""A comparison in the terminal: figures first, tests of syntax in a second table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from treelm.evaluation.comparison.columns import Column
from treelm.evaluation.comparison.figures import Comparison
from treelm.evaluation.comparison.formats import LEGEND, shown_columns


def comparison_tables(comparison: Comparison) -> RenderableType:
    """One row a run in each table, and the notes below."""
    columns = shown_columns(comparison)
    tables = [_table(comparison, columns, group, title) for group, title in _TITLES.items() if _has(columns, group)]
    return Group(*tables, Text(LEGEND), *(Text(f"note: {note}") for note in comparison.notes))


_TITLES: dict[Literal["figures", "sizes and speed", "syntax tests"], str] = {
    "figures": "figures",
    "sizes and speed": "sizes and speed",
    "syntax tests": "tests of syntax: correct in percent",
}


def _has(columns: Sequence[Column], group: str) -> bool:
    return any(column.group == group for column in columns)


def _table(comparison: Comparison, columns: Sequence[Column], group: str, title: str) -> Table:
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for column in columns:
        if column.group not in ("names", group):
            continue
        cells = [column.cell(row) for row in comparison.runs]
        widest = max(map(cell_len, cells))  # headings may be cut into lines, cells not
        table.add_column(column.heading, justify="left" if column.group == "names" else "right", min_width=widest)
    for row in comparison.runs:
        table.add_row(*(Text(column.cell(row)) for column in columns if column.group in ("names", group)))
    return table
