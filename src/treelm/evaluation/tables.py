"""A table for people: what its columns mean, and its forms in the terminal, in Markdown and in LaTeX."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from rich.cells import cell_len, chop_cells
from rich.text import Text

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.table import Table as RichTable

MISSING = "-"
Row = Sequence[tuple[str, str | None]]
"""Cells with their headings."""
_BREAK = re.compile(r"(?<=[\s/_-])(?!\s)")
_LATEX = str.maketrans(
    {
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "≤": r"$\leq$",
        "±": r"$\pm$",
        "[": "{[}",  # at the beginning of a row the end of the row before would take [ and * for its own
        "*": "{*}",
    }
    | {character: f"\\{character}" for character in "{}&%$#_"}
    | {character: f"${character}$" for character in "<>|"}
)


class Bold(str):
    """A cell in bold type, such as the best of its column."""

    __slots__ = ()


@dataclass(frozen=True, kw_only=True)
class Table:
    """Cells of text under headings, with a title and a caption. The first columns say what a row is."""

    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    title: str = ""
    caption: str = ""
    num_labels: int = 1
    """Number of the columns that stand in every part where not all columns fit into the terminal."""
    texts: frozenset[int] = frozenset()
    """Further columns of text, which are not aligned with their ends."""
    ends: frozenset[int] = frozenset()
    """Rows with a rule after them, in the terminal."""

    @classmethod
    def of(cls, rows: Sequence[Row], **options: Any) -> Table:
        """Make a table of rows with the same headings; None is a missing value."""
        headings = [heading for row in rows[:1] for heading, _ in row]
        return cls(
            headings=headings, rows=[[MISSING if cell is None else cell for _, cell in row] for row in rows], **options
        )

    def to_markdown(self) -> str:
        """The table in GitHub's Markdown."""
        dashes = ["---", *("---:" for _ in self.headings[1:])]
        lines = [[*map(_markdown, self.headings)], dashes, *([*map(_markdown, row)] for row in self.rows)]
        return "".join(f"| {' | '.join(line)} |\n" for line in lines)

    def to_latex(self) -> str:
        """The table as a tabular with the rules of booktabs."""
        heading, *rows = (" & ".join(map(latex_text, row)) + " \\\\\n" for row in (self.headings, *self.rows))
        sides = "".join(
            "l" if number < self.num_labels or number in self.texts else "r" for number in range(len(self.headings))
        )
        begin = f"\\begin{{tabular}}{{{sides}}}\n\\toprule\n"
        return f"{begin}{heading}\\midrule\n{''.join(rows)}\\bottomrule\n\\end{{tabular}}\n"

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        """Draw it in the terminal; columns that do not fit go below, under the same labels."""
        for number, part in enumerate(self.parts(options.max_width)):
            if number:
                yield Text()
            if self.title:
                yield Text(self.title + ", continued" * (number > 0), style="table.title")
            yield part
        if self.caption:
            yield Text(self.caption, style="table.caption")

    def parts(self, width: int) -> Iterator[RichTable]:
        """Parts of the table that are at most ``width`` cells wide: labels whole, with as many columns as fit.

        A label that leaves no room for a column goes over several lines.
        """
        if not self.headings:
            return
        columns = [_Drawn(heading, [row[number] for row in self.rows]) for number, heading in enumerate(self.headings)]
        gap = next((gap for gap in (2, 1) if _width(columns, gap) <= width), 2)
        labels, others = columns[: self.num_labels], columns[self.num_labels :]
        widest = max(labels, key=lambda one: one.width)
        surplus = max((_width([*labels, column], gap) for column in others), default=0) - width
        if surplus > 0:
            widest.fold(max(2, widest.width - surplus))
        groups: list[list[_Drawn]] = [[]]
        for column in others:
            if groups[-1] and _width([*labels, *groups[-1], column], gap) > width:
                groups.append([])
            groups[-1].append(column)
        texts = [*labels, *(columns[number] for number in self.texts)]
        for group in groups:
            yield self._part([*labels, *group], texts, gap)

    def _part(self, columns: Sequence[_Drawn], texts: Sequence[_Drawn], gap: int) -> RichTable:
        from rich.box import SIMPLE_HEAD
        from rich.table import Table as RichTable

        part = RichTable(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 0, 0, gap - 1))
        for column in columns:
            justify: Literal["left", "right"] = "left" if column in texts else "right"
            part.add_column(Text(column.heading), justify=justify, no_wrap=True, min_width=column.width)
        for number, cells in enumerate(zip(*(column.cells for column in columns), strict=True)):
            part.add_row(*map(Text, cells), end_section=number in self.ends)
        return part


class _Drawn:
    """A column in the terminal, its heading in lines about as wide as its cells."""

    def __init__(self, heading: str, cells: list[str]) -> None:
        """Break the heading after blanks, slashes, hyphens and underscores."""
        words = [part.strip() for part in _BREAK.split(heading)]
        most = max(map(cell_len, [*"\n".join(cells).split("\n"), *words]))
        self.heading, self.cells = _folded(heading, most), cells

    @property
    def width(self) -> int:
        """Cells of the terminal that the widest line takes."""
        return max(cell_len(line) for text in (self.heading, *self.cells) for line in text.split("\n"))

    def fold(self, most: int) -> None:
        """Break cells that are wider than ``most``."""
        self.cells = [cell if cell_len(cell) <= most else _folded(cell, most) for cell in self.cells]


def _width(columns: Sequence[_Drawn], gap: int) -> int:
    return sum(column.width for column in columns) + gap * (len(columns) - 1)


def _folded(text: str, most: int) -> str:
    """Break a text into lines of at most ``most`` cells, within a word only where it is wider."""
    lines: list[str] = []
    for part in filter(str.strip, _BREAK.split(text)):
        if lines and cell_len(f"{lines[-1]}{part}".strip()) <= most:
            lines[-1] += part
        else:
            whole = part.rstrip()
            lines += [whole] if cell_len(whole.strip()) <= most else chop_cells(whole.strip(), most)
            lines[-1] += part[len(whole) :]
    return "\n".join(line.strip() for line in lines)


def _markdown(cell: str) -> str:
    text = cell.replace("|", r"\|").replace("<", "&lt;")
    return f"**{text}**" if isinstance(cell, Bold) else text


def latex_text(text: str) -> str:
    """Escape every character that LaTeX takes for a command."""
    escaped = text.translate(_LATEX)
    return rf"\textbf{{{escaped}}}" if isinstance(text, Bold) else escaped
