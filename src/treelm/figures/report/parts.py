"""What all sections of a page are made of."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from treelm.evaluation.comparison.figures import Comparison
from treelm.figures.markup import Content, Markup, element, join
from treelm.figures.report.looks import colour_class, swatch


@dataclass(frozen=True, kw_only=True)
class Section:
    """A part of the page with a heading."""

    identifier: str
    title: str
    content: Markup

    def as_html(self) -> Markup:
        """The section as an element."""
        return element("section", element("h2", self.title), self.content, id=self.identifier)


def looks_of(comparison: Comparison) -> dict[str, int]:
    """Run -> number of its look, the same in the whole page."""
    return {row.name: number for number, row in enumerate(comparison.runs)}


def figure(content: Content, *caption: Content, class_: str | None = None) -> Markup:
    """Something to look at, and below it what it means."""
    return element("figure", content, element("figcaption", *caption), class_=class_)


def scrolled(content: Content, name: str) -> Markup:
    """A box that scrolls by itself where it is narrower than its content; by keys too, so it has a name."""
    return element("div", content, class_="scrolled", tabindex="0", role="region", aria_label=name)


def details(summary: str, content: Content) -> Markup:
    """What is there for those who want to know."""
    return element("details", element("summary", summary), content)


def run_name(name: str, look: int) -> Markup:
    """A run as tables name it."""
    return join(swatch(look), " ", name)


@dataclass(frozen=True, kw_only=True)
class Bar:
    """A row of a panel: a share from 0 to 1."""

    name: str
    look: int
    value: float


@dataclass(frozen=True, kw_only=True)
class Panel:
    """Bars under one heading, and the shares of other models as ticks, with the share of chance if it is known."""

    title: str
    bars: Sequence[Bar]
    others: Sequence[float] = ()
    chance: float | None = None


def bar_panels(panels: Iterable[Panel]) -> Markup:
    """A small table of bars for each panel, side by side where there is room."""
    return element("div", *map(_panel, panels), class_="panels")


def _panel(panel: Panel) -> Markup:
    rows = [_bar(bar, panel.chance) for bar in panel.bars]
    if panel.others:
        ticks = (element("i", style=f"left:{100 * value:.1f}%") for value in panel.others)
        track = element("td", element("div", *ticks, class_="track ticks"))
        rows.append(element("tr", element("th", "published", scope="row"), track, element("td", _range(panel.others))))
    return element("table", element("caption", panel.title), element("tbody", *rows), class_="bars")


def _bar(bar: Bar, chance: float | None) -> Markup:
    fill = element("div", class_=f"fill {colour_class(bar.look)}", style=f"width:{100 * bar.value:.1f}%")
    line = () if chance is None else (element("i", style=f"left:{100 * chance:.1f}%"),)
    return element(
        "tr",
        element("th", run_name(bar.name, bar.look), scope="row"),
        element("td", element("div", fill, *line, class_="track")),
        element("td", f"{100 * bar.value:.1f}"),
    )


def _range(values: Sequence[float]) -> str:
    return f"{100 * min(values):.0f}\N{EN DASH}{100 * max(values):.0f}"


def plain_table(caption: str, heads: Sequence[Content], rows: Iterable[Sequence[Content]]) -> Markup:
    """A table of texts; the first cell of each row names it."""
    head = element("tr", *(element("th", cell, scope="col") for cell in heads))
    body = (
        element("tr", element("th", row[0], scope="row"), *(element("td", cell) for cell in row[1:])) for row in rows
    )
    return element("table", element("caption", caption), element("thead", head), element("tbody", *body), class_="data")
