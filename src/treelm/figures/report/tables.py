"""The comparison's figures as tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from treelm.evaluation.comparison.columns import Column
from treelm.evaluation.comparison.figures import Comparison, RunFigures
from treelm.evaluation.comparison.formats import LEGEND, shown_columns
from treelm.evaluation.runs import GUM_NOTES
from treelm.figures.markup import Content, Markup, element, join
from treelm.figures.report.parts import Section, looks_of, run_name, scrolled

_TITLES: dict[Literal["figures", "sizes and speed", "syntax tests"], str] = {
    "figures": "Perplexity and trees, on {split}",
    "syntax tests": "Tests of syntax, correct in percent",
    "sizes and speed": "Sizes and speed",
}
SIGNS = ("\N{DAGGER}", "\N{DOUBLE DAGGER}")
"""What stands beside every F1 and points to the note on its gold trees."""


def table_section(comparison: Comparison) -> Section:
    """A table for each group of columns, what the columns are, and the notes."""
    columns = shown_columns(comparison)
    signs = dict(zip(GUM_NOTES.values(), SIGNS, strict=True))
    splits = " and ".join(dict.fromkeys(row.split for row in comparison.runs))
    titles = {group: title.format(split=splits) for group, title in _TITLES.items()}
    tables = [
        scrolled(_table(comparison, columns, group, title, signs), title)
        for group, title in titles.items()
        if any(column.group == group for column in columns)
    ]
    return Section(identifier="figures", title="Figures", content=join(*tables, _notes(comparison, signs)))


def _table(
    comparison: Comparison, columns: Sequence[Column], group: str, title: str, signs: Mapping[str, str]
) -> Markup:
    chosen = [column for column in columns if column.group == group]
    looks = looks_of(comparison)
    head = (element("th", _heading(column), scope="col") for column in chosen)
    rows = (
        element(
            "tr",
            element("th", run_name(row.name, looks[row.name]), scope="row"),
            *(element("td", *_cell(column, row, signs)) for column in chosen),
        )
        for row in comparison.runs
    )
    return element(
        "table",
        element("caption", title),
        element("thead", element("tr", element("th", "run", scope="col"), *head)),
        element("tbody", *rows),
        class_="data",
    )


def _heading(column: Column) -> str:
    """The protocol of a labelled F1 stands in its name alone."""
    if not column.name.startswith("labeled_f1, "):
        return column.heading
    return f"{column.heading} {column.name.removeprefix('labeled_f1, ').partition(' (')[0]}"


def _cell(column: Column, row: RunFigures, signs: Mapping[str, str]) -> list[Content]:
    text = column.cell(row)
    is_f1 = "_f1" in column.name and column.value(row) is not None
    return [text, *(element("sup", signs[note]) for note in row.notes if is_f1 and note in signs)]


def _notes(comparison: Comparison, signs: Mapping[str, str]) -> Markup:
    notes = [element("li", LEGEND)]
    notes += [element("li", f"{signs[note]} " if note in signs else "", note) for note in comparison.notes]
    return element("ul", *notes, class_="notes")
