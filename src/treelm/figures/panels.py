"""Values of ours beside published ones as dots with intervals, and curves of training, as pictures of their own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from treelm.figures.charts import Axes, Point, line_chart, mark_text, scale_over
from treelm.figures.svg import MARGIN, Drawing, beside, element, join, mark, text, text_width

_FONT, _ROW, _TITLE, _AXIS, _PANEL = 12, 20, 26, 34, 220


@dataclass(frozen=True, kw_only=True)
class Dot:
    """A row of a panel: our mean with half of its interval, and the published value."""

    name: str
    label: str
    """Setting of ours, for those who point at it."""
    ours: float | None
    spread: float = 0.0
    published: float | None = None


def dot_panels(panels: Mapping[str, Sequence[Dot]], title: str) -> str:
    """A panel for each heading, rows below one another: a full dot is ours, a ring is published."""
    rows = list(dict.fromkeys(dot.name for dots in panels.values() for dot in dots))
    left = MARGIN + max(text_width(name, _FONT) for name in rows) + 14
    bottom = _TITLE + _ROW * len(rows)
    places = {name: _TITLE + _ROW * (number + 0.5) for number, name in enumerate(rows)}
    parts = [text(MARGIN, place + 4, name) for name, place in places.items()]
    for heading, dots in panels.items():
        parts.append(text(left, _TITLE - 12, heading, "title"))
        ends = [dot.ours + side * dot.spread for dot in dots if dot.ours is not None for side in (-1, 1)]
        values = [*ends, *(dot.published for dot in dots if dot.published is not None)]
        if values:
            x = scale_over(values, left, left + _PANEL)
            for value in x.marks(4):
                parts.append(element("line", class_="rule", x1=x(value), x2=x(value), y1=_TITLE, y2=bottom))
                parts.append(text(x(value), bottom + 14, mark_text(value), "tick middle"))
            for dot in dots:
                y = places[dot.name]
                if dot.published is not None:
                    title_of = element("title", f"{dot.name}, published: {dot.published:g}")
                    parts.append(element("circle", title_of, class_="ring", cx=x(dot.published), cy=y, r=4.5))
                if dot.ours is not None:
                    low, high = x(dot.ours - dot.spread), x(dot.ours + dot.spread)
                    parts.append(element("path", class_="curve s0", d=f"M{low:.1f} {y:.1f}H{high:.1f}"))
                    tip = f"{dot.name}, ours ({dot.label}): {dot.ours:.4g} ± {dot.spread:.2g}"
                    parts.append(mark(0, x(dot.ours), y, tip))
        left += _PANEL + 24
    key = "full dots: ours, with the interval of the mean; rings: published"
    parts.append(text(MARGIN, bottom + _AXIS + _ROW - 6, key))
    return Drawing("plot", title, left + MARGIN, bottom + _AXIS + _ROW, join(*parts)).file()


def line_panel(lines: Sequence[tuple[str, Sequence[tuple[float, float]]]], title: str, across: str, up: str) -> str:
    """Curves over linear axes, beside their names; those of one name have one colour."""
    looks = {name: look for look, name in enumerate(dict.fromkeys(name for name, _ in lines))}
    curves = [(looks[name], [Point(*point) for point in points]) for name, points in lines]
    chart = line_chart(curves, Axes(title, across, up), 520, zero=True)
    keys = [join(mark(look, 6, 20 * look + 26), text(18, 20 * look + 30, name)) for name, look in looks.items()]
    width = 18 + max(text_width(name, _FONT) for name in looks)
    return beside(title, [chart, Drawing("plot", "key", width, chart.height, join(*keys))]).file()
