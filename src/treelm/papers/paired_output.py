"""Paired differences for the terminal, as TSV, as lines of LaTeX, and as panels of a picture."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from rich.box import SIMPLE_HEAD
from rich.table import Table as Grid
from rich.text import Text

from treelm.evaluation.comparison.tables import latex_text
from treelm.evaluation.intervals import spread_text
from treelm.figures.panels import Dot
from treelm.papers.declaration import Column
from treelm.papers.paired import PairedDifference
from treelm.papers.results import Value

TSV = ("paired_with", "paired_difference", "paired_interval", "pairs", "paired_by_seed")
Pair = tuple[Value, PairedDifference]


def tsv_cells(paired: PairedDifference | None) -> tuple[str | float | None, ...]:
    """What ``TSV`` names, unrounded; differences of seeds in the order of the seeds."""
    if paired is None:
        return (None,) * len(TSV)
    by_seed = " ".join(f"{difference:.6g}" for difference in paired.by_seed.values())
    return paired.other, paired.mean, paired.interval, len(paired.by_seed), by_seed


def text_parts(values: Sequence[Value]) -> Iterator[Text | Grid]:
    """A grid for each row from which others differ, 80 columns wide."""
    for other, pairs in _groups(values):
        grid = Grid(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
        grid.add_column("", max_width=36)
        grid.add_column("", max_width=18)
        for heading in ("difference", "pairs"):
            grid.add_column(heading, justify="right", no_wrap=True)
        before = None
        for value, paired in pairs:
            name = value.row if value.row != before else ""
            grid.add_row(Text(name), Text(value.heading), _rounded(value, paired), str(len(paired.by_seed)))
            before = value.row
        yield from (Text(_heading(other)), grid, Text())


def latex_lines(columns: Sequence[Column], values: Sequence[Value]) -> Iterator[str]:
    """Rows below those of the values, the numbers of pairs where the setting stands."""
    for other, pairs in _groups(values):
        yield r"\midrule"
        yield rf"\multicolumn{{{2 * len(columns) + 2}}}{{l}}{{{latex_text(_heading(other))}}} \\"
        for name, found in groupby(pairs, key=lambda pair: pair[0].row):
            by_column = {value.column: (value, paired) for value, paired in found}
            cells = [_latex_cell(by_column.get(column.name)) for column in columns]
            numbers = dict.fromkeys(str(len(paired.by_seed)) for _, paired in by_column.values())
            yield f"{latex_text(name)} & {' & & '.join(cells)} & & pairs: {', '.join(numbers)}" + r" \\"


def _latex_cell(pair: Pair | None) -> str:
    return "" if pair is None else _rounded(*pair).replace(" ± ", r" $\pm$ ")


def panels(columns: Sequence[Column], values: Sequence[Value]) -> dict[str, list[Dot]]:
    """The dots of each column, by a heading that says what is subtracted."""
    found: dict[str, list[Dot]] = {}
    for other, pairs in _groups(values):
        for column in columns:
            dots = [_dot(value, paired) for value, paired in pairs if value.column == column.name]
            found |= {f"{column.heading}, less {other}": dots} if dots else {}
    return found


def _dot(value: Value, paired: PairedDifference) -> Dot:
    label = f"{value.label}; less {paired.other}, {len(paired.by_seed)} pairs"
    return Dot(name=value.row, label=label, ours=paired.mean, spread=paired.interval or 0.0)


def _groups(values: Sequence[Value]) -> Iterator[tuple[str, list[Pair]]]:
    """The cells that have a difference, by the row that is subtracted."""
    groups: dict[str, list[Pair]] = {}
    for value in values:
        if value.paired is not None:
            groups.setdefault(value.paired.other, []).append((value, value.paired))
    yield from groups.items()


def _heading(other: str) -> str:
    return f"difference from {other}, seed by seed"


def _rounded(value: Value, paired: PairedDifference) -> str:
    return f"{paired.mean:+.{value.digits}f}{spread_text(paired.interval, value.digits)}"
