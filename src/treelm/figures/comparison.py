"""A comparison in the terminal: figures first, tests of syntax in a second table."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import wrap
from typing import Literal

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from treelm.evaluation.comparison.figures import Comparison
from treelm.evaluation.comparison.tables import LEGEND, Column, shown_columns


def comparison_tables(comparison: Comparison) -> RenderableType:
    """One row a run in each table, and the notes below."""
    columns = [column for column in shown_columns(comparison) if not column.is_wide]
    shown = [(group, title) for group, title in _TITLES.items() if _has(columns, group)]
    tables = [part for group, title in shown for part in (_table(comparison, columns, group, title), Text())]
    return Group(*tables, Text(f"ppl: perplexity. {LEGEND}"), *(Text(f"note: {note}") for note in comparison.notes))


_TITLES: dict[Literal["figures", "sizes and speed", "syntax tests"], str] = {
    "figures": "figures",
    "sizes and speed": "sizes and speed",
    "syntax tests": "tests of syntax: correct in percent",
}


def _has(columns: Sequence[Column], group: str) -> bool:
    return any(column.group == group for column in columns)


def _table(comparison: Comparison, columns: Sequence[Column], group: str, title: str) -> Table:
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=0)
    shown = [column for column in columns if column.group in ("names", group)]
    for column in shown:
        widest = max(cell_len(column.cell(row)) for row in comparison.runs)
        justify: Literal["left", "right"] = "left" if column.group == "names" else "right"
        table.add_column(_heading(column.heading, widest), justify=justify, no_wrap=True)
    for row in comparison.runs:
        table.add_row(*(Text(column.cell(row)) for column in shown))
    return table


def _heading(text: str, cells: int) -> str:
    """A heading cut into lines at blanks, about as wide as what stands below it."""
    text = text.replace("perplexity", "ppl")
    return "\n".join(wrap(text, max(cells, *map(len, text.split())) if text else 1, break_on_hyphens=False))
