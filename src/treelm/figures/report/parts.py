"""The parts that all sections of a page are made of: the look of a run, figures, panels of bars, tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from unicodedata import east_asian_width

from treelm.evaluation.comparison.metrics import Comparison
from treelm.figures.markup import Content, Markup, element, join

NUM_COLOURS = 7
CARD_MARGINS = 34  # pixels left and right of a drawing in a card
_MARKS = (  # around (0, 0)
    "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0 -8 0z",
    "M-3.6 -3.6h7.2v7.2h-7.2z",
    "M0 -5l5 5l-5 5l-5 -5z",
    "M0 -4.8l4.8 8.4h-9.6z",
    "M0 4.8l4.8 -8.4h-9.6z",
    "M-1.6 -4.6h3.2v3h3v3.2h-3v3h-3.2v-3h-3v-3.2h3z",
)
_NARROW, _WIDE = frozenset("iljtfrI.,;:!|'`()[]-"), frozenset("mwMW@%&<>=+~#")
Looks = Mapping[str, int]
"""The number of the look of every run: its colour, mark and dashes, the same in the whole page."""


@dataclass(frozen=True, kw_only=True)
class Section:
    """A part of the page with a heading."""

    identifier: str
    title: str
    content: Markup

    def as_html(self) -> Markup:
        """The section as an element."""
        return element("section", element("h2", self.title), self.content, id=self.identifier)


def looks_of(comparison: Comparison) -> Looks:
    """The looks of the runs, by their order."""
    return {row.name: number for number, row in enumerate(comparison.runs)}


def colour_class(look: int) -> str:
    """The class that sets the colour of the run with this look, and its dashes from the eighth run on."""
    dashed = " dashed" if (look // NUM_COLOURS) % 2 else ""
    return f"s{look % NUM_COLOURS}{dashed}"


def mark(look: int, x: float, y: float, tip: str | None = None) -> Markup:
    """The mark of a run at a place, with a text for those who point at it."""
    title = () if tip is None else (element("title", tip),)
    place = f"translate({x:.1f} {y:.1f})"
    shape = _MARKS[look % len(_MARKS)]
    return element("path", *title, class_=f"mark {colour_class(look)}", d=shape, transform=place)


def swatch(look: int) -> Markup:
    """A piece of line with the run's mark, for keys and tables."""
    line = element("path", class_=f"curve {colour_class(look)}", d="M0 6H22")
    return element("svg", line, mark(look, 11, 6), class_="swatch", viewBox="0 0 22 12", aria_hidden="true")


def run_name(name: str, look: int) -> Markup:
    """A run as tables name it."""
    return join(swatch(look), " ", name)


def key(names: Mapping[int, str], class_: str = "key") -> Markup:
    """The key of a chart: which run has which look."""
    items = (element("li", run_name(name, look)) for look, name in names.items())
    return element("ul", *items, class_=class_)


def text_width(text: str, font_size: float) -> float:
    """About as wide as a text is in a sans-serif font, in pixels."""
    return font_size * sum(map(_ems, text))


def _ems(character: str) -> float:
    if east_asian_width(character) in "WF":
        return 1.0
    if character in _NARROW:
        return 0.34
    return 0.88 if character in _WIDE else 0.7 if character.isupper() else 0.6


def figure(content: Content, *caption: Content, class_: str | None = None) -> Markup:
    """A picture or table, and below it what it means."""
    return element("figure", content, element("figcaption", *caption), class_=class_)


def drawing(class_: str, title: str, width: float, height: float, content: Markup) -> Markup:
    """An SVG in its natural size, with its title."""
    box = f"0 0 {width:.0f} {height:.0f}"
    parts = (element("title", title), content)
    return element("svg", *parts, class_=class_, role="img", viewBox=box, width=round(width), height=round(height))


def scrolled(content: Content, name: str) -> Markup:
    """A box that scrolls by itself where it is narrower than its content; by keys too, so it has a name."""
    return element("div", content, class_="scrolled", tabindex="0", role="group", aria_label=name)


def card(head: Content, content: Content, name: str) -> Markup:
    """A frame around a drawing, which scrolls, with a heading."""
    return element("div", element("h3", head), scrolled(content, name), class_="card")


def details(summary: Content, content: Content) -> Markup:
    """Content that is folded away until its summary is clicked."""
    return element("details", element("summary", summary), content)


@dataclass(frozen=True, kw_only=True)
class Panel:
    """Bars under one heading: the shares of runs from 0 to 1, those of other models as ticks, and that of chance."""

    title: str
    shares: Mapping[str, float]
    others: Sequence[float] = ()
    chance: float | None = None


def panels_of(names: Iterable[str], by_run: Mapping[str, Mapping[str, float]]) -> list[Panel]:
    """A panel for each name that some run has a share of."""
    shares = {name: {run: found[name] for run, found in by_run.items() if name in found} for name in names}
    return [Panel(title=name, shares=found) for name, found in shares.items() if found]


def bar_panels(panels: Iterable[Panel], looks: Looks) -> Markup:
    """A small table of bars for each panel, side by side where there is room."""
    return element("div", *(_panel(one, looks) for one in panels), class_="panels")


def _panel(panel: Panel, looks: Looks) -> Markup:
    rows = [_bar(name, looks[name], share, panel.chance) for name, share in panel.shares.items()]
    if panel.others:
        ticks = (element("i", style=f"left:{100 * value:.1f}%") for value in panel.others)
        track = element("td", element("div", *ticks, class_="track ticks"))
        rows.append(element("tr", element("th", "published", scope="row"), track, element("td", _range(panel.others))))
    return element("table", element("caption", panel.title), element("tbody", *rows), class_="bars")


def _bar(name: str, look: int, share: float, chance: float | None) -> Markup:
    fill = element("div", class_=f"fill {colour_class(look)}", style=f"width:{100 * share:.1f}%")
    line = () if chance is None else (element("i", style=f"left:{100 * chance:.1f}%"),)
    return element(
        "tr",
        element("th", run_name(name, look), scope="row"),
        element("td", element("div", fill, *line, class_="track")),
        element("td", f"{100 * share:.1f}"),
    )


def _range(values: Sequence[float]) -> str:
    return f"{100 * min(values):.0f}\N{EN DASH}{100 * max(values):.0f}"


def data_table(caption: str, heads: Sequence[Content], rows: Iterable[Sequence[Content]]) -> Markup:
    """A table of numbers; the first cell of each row names it."""
    head = element("tr", *(element("th", cell, scope="col") for cell in heads))
    body = (
        element("tr", element("th", row[0], scope="row"), *(element("td", cell) for cell in row[1:])) for row in rows
    )
    return element("table", element("caption", caption), element("thead", head), element("tbody", *body), class_="data")
