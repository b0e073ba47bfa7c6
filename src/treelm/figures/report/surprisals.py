"""Surprisals of a sentence as small multiples: a row of bars for each model, in the same columns, on one scale."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from treelm.figures.markup import Content, Markup, element
from treelm.figures.report.parts import colour_class


class Row(NamedTuple):
    """The surprisals of a model in bits, and what the row says besides."""

    head: Content
    name: str
    look: int
    bits: Sequence[float]
    is_unknown: Sequence[bool]
    more: Sequence[str]  # cells after the words


def surprisal_table(words: Sequence[str], more: Sequence[str], rows: Sequence[Row]) -> Markup:
    """A column for each word, with the number over its bar; ``more`` are headings of columns without bars."""
    highest = max((bits for row in rows for bits in row.bits if math.isfinite(bits)), default=1.0)
    heads = (element("th", word, scope="col") for word in words)
    last = (element("th", text, scope="col", class_="more") for text in more)
    return element(
        "table",
        element("caption", "Surprisal in bits"),
        element("thead", element("tr", element("td"), *heads, *last)),
        element("tbody", *(_row(words, row) for row in rows)),
        class_="words",
        style=f"--words:{len(words) + len(more)};--most:{max(highest, 1.0):.4f}",
    )


def _row(words: Sequence[str], row: Row) -> Markup:
    cells = [
        element(
            "td",
            element("span", f"{bits:.1f}{'*' * unknown}"),
            element("i", style=f"--bits:{min(bits, 1e6):.4f}"),
            title=f"{row.name}, {word}: {bits:.1f}{'*' * unknown}",
        )
        for word, bits, unknown in zip(words, row.bits, row.is_unknown, strict=True)
    ]
    head = element("th", element("div", row.head, class_="name"), scope="row")
    more = (element("td", text, class_="more") for text in row.more)
    return element("tr", head, *cells, *more, class_=colour_class(row.look))
