"""Measurements as a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table


def speed_table(rows: Sequence[Mapping[str, Any]], title: str) -> Table:
    """One row a measurement, one column a figure."""
    table = Table(title=title)
    for name in rows[0]:
        table.add_column(name.replace("_", " "), justify="right")
    for row in rows:
        table.add_row(*(_text(value) for value in row.values()))
    return table


def _text(value: Any) -> str:
    if not isinstance(value, float):
        return str(value)
    return f"{value:.3g}" if value < 10 else f"{value:,.0f}"
