"""A table of texts, in the terminal, in Markdown and in LaTeX."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from textwrap import wrap
from typing import TYPE_CHECKING, Any, Literal

from rich.cells import cell_len
from rich.text import Text

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.table import Table as RichTable

MISSING = "-"
Row = Sequence[tuple[str, str | None]]
"""Cells with their headings."""
_GAP = 2  # cells between columns of the terminal
_NARROWEST = 20  # cells of a column of text
_LATEX = str.maketrans(
    {
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "≤": r"$\leq$",
        "≥": r"$\geq$",
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
    num_labels: int = 1  # number of the columns that stand in every part where not all columns fit into the terminal
    texts: frozenset[int] = frozenset()  # further columns of text, which are not aligned with their ends
    ends: frozenset[int] = frozenset()  # rows with a rule after them, in the terminal

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
        """Draw the table for a terminal; columns that do not fit stand below, beside the same labels."""
        for number, part in enumerate(self.parts(options.max_width)):
            if number:
                yield Text()
            if self.title:
                yield Text(self.title + ", continued" * (number > 0), style="table.title")
            yield part
        if self.caption:
            yield Text(self.caption, style="table.caption")

    def parts(self, width: int) -> Iterator[RichTable]:
        """Split the table into parts of at most ``width`` cells, each of the labels with as many columns as fit.

        Long labels and a last column of text are wrapped.
        """
        from rich.box import SIMPLE_HEAD
        from rich.table import Table as RichTable

        headings, sizes = [], []
        for number, heading in enumerate(self.headings):
            widest = max((cell_len(line) for row in self.rows for line in row[number].split("\n")), default=0)
            lines = wrap(heading, max(widest, *map(cell_len, re.split(r"[ -]", heading))), break_long_words=False)
            headings.append("\n".join(lines))
            sizes.append(max([widest, *map(cell_len, lines)]))
        labels = range(self.num_labels)
        last, room = len(sizes) - 1, width - sum(size + _GAP for size in sizes[:-1])
        if last in self.texts and sizes[last] > _NARROWEST:
            sizes[last] = min(sizes[last], room if room >= _NARROWEST else max(_NARROWEST, width - sizes[0] - _GAP))
        surplus = sum(sizes[one] + _GAP for one in labels) + max(sizes[self.num_labels :], default=0) - width
        if surplus > 0 and sizes:
            longest = max(labels, key=sizes.__getitem__)
            sizes[longest] = max(2, sizes[longest] - surplus)
        groups: list[list[int]] = [[]]
        for number in range(self.num_labels, len(sizes)):
            beside = sum(sizes[one] + _GAP for one in (*labels, *groups[-1]))
            if groups[-1] and beside + sizes[number] > width:
                groups.append([])
            groups[-1].append(number)
        for group in groups if sizes else ():
            part = RichTable(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 0, 0, _GAP - 1))
            for number in (*labels, *group):
                justify: Literal["left", "right"] = "left" if number in (*labels, *self.texts) else "right"
                part.add_column(Text(headings[number]), justify=justify, overflow="fold", width=sizes[number])
            for number, row in enumerate(self.rows):
                cells = [Text(row[one], "bold" * isinstance(row[one], Bold)) for one in (*labels, *group)]
                part.add_row(*cells, end_section=number in self.ends)
            yield part


def _markdown(cell: str) -> str:
    text = cell.replace("|", r"\|").replace("<", "&lt;")
    return f"**{text}**" if isinstance(cell, Bold) else text


def latex_text(text: str) -> str:
    """Escape every character that LaTeX takes for a command."""
    escaped = text.translate(_LATEX)
    return rf"\textbf{{{escaped}}}" if isinstance(text, Bold) else escaped
