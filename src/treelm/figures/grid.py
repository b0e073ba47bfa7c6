"""A table in the terminal: labels whole, and columns that do not fit in a further part below, under the same labels."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len, chop_cells
from rich.table import Table
from rich.text import Text

_GAPS = (2, 1)  # cells between columns: the second where all of them fit only so
_BREAK = re.compile(r"(?<=[\s/_-])(?!\s)")


def _folded(text: str, most: int) -> list[str]:
    """Return lines of at most ``most`` cells, cut after blanks, slashes, hyphens, underscores, or in wider words."""
    parts = [part for part in _BREAK.split(text) if part.strip()]
    lines: list[str] = []
    for part in parts:
        if lines and cell_len(f"{lines[-1]}{part}".strip()) <= most:
            lines[-1] += part
        else:
            whole = part.rstrip()
            lines += [whole] if cell_len(whole.strip()) <= most else chop_cells(whole.strip(), most)
            lines[-1] += part[len(whole) :]
    return [line.strip() for line in lines]


@dataclass(frozen=True, kw_only=True)
class GridColumn:
    """A heading with a cell for each row, as text."""

    heading: str
    cells: Sequence[str]
    justify: Literal["left", "right"] = "right"

    @property
    def lines(self) -> list[str]:
        """The heading in lines about as wide as the cells, cut at blanks, slashes, hyphens and underscores."""
        words = (part.strip() for part in _BREAK.split(self.heading))
        return _folded(self.heading, max(map(cell_len, [*self._cell_lines, *words]), default=1))

    @property
    def _cell_lines(self) -> list[str]:
        return [line for cell in self.cells for line in cell.split("\n")]

    @property
    def width(self) -> int:
        """Cells that the widest line of it takes."""
        return max(map(cell_len, [*self._cell_lines, *self.lines]), default=0)

    def folded(self, most: int) -> GridColumn:
        """Return the same with several lines in cells that are wider than ``most``."""
        cells = [cell if cell_len(cell) <= most else "\n".join(_folded(cell, most)) for cell in self.cells]
        return replace(self, cells=cells)


def _width(columns: Sequence[GridColumn], gap: int) -> int:
    return sum(column.width for column in columns) + gap * (len(columns) - 1)


@dataclass(frozen=True, kw_only=True)
class Grid:
    """Columns under a title. ``labels`` are the first ones, which say what a row is."""

    labels: Sequence[GridColumn]
    columns: Sequence[GridColumn]
    title: str = ""
    caption: str = ""
    ends: frozenset[int] = frozenset()  # rows with a rule after them

    def parts(self, width: int | None = None) -> Iterator[tuple[str, Table]]:
        """Titles and tables, at most ``width`` cells wide; without it, one table.

        A label that leaves no room for a column goes over several lines.
        Titles and ``caption`` are no part of the tables, which would cut them off where they are wider.
        """
        gap = _GAPS[0]
        if width is not None:
            gap = next((gap for gap in _GAPS if _width([*self.labels, *self.columns], gap) <= width), _GAPS[0])
        labels = self.labels if width is None else self._labels_beside_a_column(width, gap)
        groups: list[list[GridColumn]] = [[]]
        for column in self.columns:
            if width is not None and groups[-1] and _width([*labels, *groups[-1], column], gap) > width:
                groups.append([])
            groups[-1].append(column)
        for number, group in enumerate(groups):
            title = self.title if number == 0 else f"{self.title}, continued" if self.title else ""
            yield title, self._table([*labels, *group], gap)

    def _labels_beside_a_column(self, width: int, gap: int) -> list[GridColumn]:
        """The labels, the widest of them folded where the widest column would be cut off beside them."""
        labels = list(self.labels)
        surplus = max((_width([*labels, column], gap) for column in self.columns), default=0) - width
        if labels and surplus > 0:
            widest = max(range(len(labels)), key=lambda number: labels[number].width)
            labels[widest] = labels[widest].folded(max(2, labels[widest].width - surplus))
        return labels

    def _table(self, shown: Sequence[GridColumn], gap: int) -> Table:
        table = Table(
            box=SIMPLE_HEAD,
            show_edge=False,
            pad_edge=False,
            padding=(0, 0, 0, gap - 1),
        )
        for column in shown:
            heading = Text("\n".join(column.lines))
            table.add_column(heading, justify=column.justify, no_wrap=True, min_width=column.width)
        for number, cells in enumerate(zip(*(column.cells for column in shown), strict=True)):
            table.add_row(*map(Text, cells), end_section=number in self.ends)
        return table


def grid_of(
    first: str, headings: Iterable[str], rows: Sequence[Sequence[str]], *, title: str = "", caption: str = "",
    ends: Iterable[int] = (),
) -> Grid:  # fmt: skip
    """Make a grid of rows, the first cell of each of which is its label."""
    cells = [list(column) for column in zip(*rows, strict=True)] or [[] for _ in (first, *headings)]
    label, *others = cells
    return Grid(
        labels=[GridColumn(heading=first, cells=label, justify="left")],
        columns=[GridColumn(heading=name, cells=own) for name, own in zip(headings, others, strict=True)],
        title=title,
        caption=caption,
        ends=frozenset(ends),
    )
