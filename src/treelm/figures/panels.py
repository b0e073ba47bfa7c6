"""Values of ours beside published ones as dots with intervals, and curves of training, as pictures of their own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle

from treelm.figures.markup import Markup, element, svg_file
from treelm.figures.report.charts import Scale, mark_text, scale_over, spread
from treelm.figures.report.parts import text_width

_FONT, _ROW, _TITLE, _AXIS, _MARGIN, _PANEL = 12, 20, 26, 34, 12, 220
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#bf5f95", "#c48a00", "#3d9cd3", "#4b5263")
_STYLE = f"""\
text {{ font: {_FONT}px sans-serif; fill: #1d2430; }}
.title {{ font-weight: bold; }}
.tick {{ fill: #596273; font-size: 11px; text-anchor: middle; }}
.rule {{ stroke: #ebedf1; }}
.interval {{ stroke: #0072b2; stroke-width: 2; }}
.ours {{ fill: #0072b2; }}
.published {{ fill: none; stroke: #d55e00; stroke-width: 2; }}
.curve {{ fill: none; stroke-width: 1.5; }}
.background {{ fill: #ffffff; }}"""


@dataclass(frozen=True, kw_only=True)
class Dot:
    """A row of a panel: our mean with half of its interval, and the published value."""

    name: str
    label: str
    """Setting of ours, for those who point at it."""
    ours: float | None
    spread: float = 0.0
    published: float | None = None


@dataclass(frozen=True, kw_only=True)
class Line:
    """A curve; those of one group have one colour, and the one with a name shows it."""

    name: str
    group: str
    points: tuple[tuple[float, float], ...]


def dot_panels(panels: Mapping[str, Sequence[Dot]], title: str) -> str:
    """A panel for each heading, rows below one another: a full dot is ours, a ring is published."""
    rows = list(dict.fromkeys(dot.name for dots in panels.values() for dot in dots))
    left = _MARGIN + max(text_width(name, _FONT) for name in rows) + 14
    height = _TITLE + _ROW * len(rows) + _AXIS + _ROW
    places = {name: _TITLE + _ROW * (number + 0.5) for number, name in enumerate(rows)}
    parts = [element("text", name, x=_MARGIN, y=place + 4) for name, place in places.items()]
    for number, (heading, dots) in enumerate(panels.items()):
        parts += _panel(heading, dots, left + number * (_PANEL + 24), places)
    width = left + len(panels) * (_PANEL + 24) + _MARGIN
    key = "full dots: ours, with the interval of the mean; rings: published"
    parts.append(element("text", key, x=_MARGIN, y=height - 6))
    return svg_file(width, height, title, [*_background(width, height), *parts])


def _background(width: float, height: float) -> list[str]:
    return [f"<style>{_STYLE}</style>", element("rect", class_="background", width=width, height=height)]


def _panel(heading: str, dots: Sequence[Dot], left: float, places: Mapping[str, float]) -> list[Markup]:
    ends = [dot.ours + side * dot.spread for dot in dots if dot.ours is not None for side in (-1, 1)]
    values = [*ends, *(dot.published for dot in dots if dot.published is not None)]
    parts = [element("text", heading, class_="title", x=left, y=_TITLE - 12)]
    if not values:
        return parts
    x = scale_over(values, left, left + _PANEL)
    bottom = _TITLE + _ROW * len(places)
    for value in x.marks(4):
        parts.append(element("line", class_="rule", x1=x(value), x2=x(value), y1=_TITLE, y2=bottom))
        parts.append(element("text", mark_text(value), class_="tick", x=x(value), y=bottom + 14))
    return [*parts, *(piece for dot in dots for piece in _drawn(dot, x, places[dot.name]))]


def _drawn(dot: Dot, x: Scale, y: float) -> list[Markup]:
    parts = []
    if dot.published is not None:
        tip = element("title", f"{dot.name}, published: {dot.published:g}")
        parts.append(element("circle", tip, class_="published", cx=x(dot.published), cy=y, r=4.5))
    if dot.ours is not None:
        low, high = dot.ours - dot.spread, dot.ours + dot.spread
        parts.append(element("line", class_="interval", x1=x(low), x2=x(high), y1=y, y2=y))
        tip = element("title", f"{dot.name}, ours ({dot.label}): {dot.ours:.4g} ± {dot.spread:.2g}")
        parts.append(element("circle", tip, class_="ours", cx=x(dot.ours), cy=y, r=3.5))
    return parts


def line_panel(lines: Sequence[Line], title: str, across: str, up: str) -> str:
    """Curves over linear axes, named at their ends."""
    named = {line.name: line for line in lines if line.name}
    right = _MARGIN + 460.0
    width, height = right + 18 + max(text_width(name, _FONT) for name in named) + _MARGIN, 320
    points = [point for line in lines for point in line.points]
    x = scale_over([point[0] for point in points], _MARGIN + 40, right, zero=True)
    y = scale_over([point[1] for point in points], height - _AXIS - 8, _TITLE)
    parts = [element("text", up, x=_MARGIN, y=_TITLE - 12)]
    for value in y.marks():
        parts.append(element("line", class_="rule", x1=x.start, x2=right, y1=y(value), y2=y(value)))
        parts.append(element("text", mark_text(value), class_="tick", x=x.start - 18, y=y(value) + 4))
    for value in x.marks():
        parts.append(element("text", mark_text(value), class_="tick", x=x(value), y=y.start + 16))
    parts.append(element("text", across, x=x.start, y=height - 6))
    groups = dict.fromkeys(line.group for line in lines)
    colours = dict(zip(groups, cycle(_COLOURS), strict=False))
    for line in lines:
        path = "M" + "L".join(f"{x(first):.1f} {y(second):.1f}" for first, second in line.points)
        parts.append(element("path", class_="curve", stroke=colours[line.group], d=path))
    ends = sorted((y(line.points[-1][1]), name) for name, line in named.items())
    for place, (_, name) in zip(spread([end for end, _ in ends], 15, _TITLE, y.start), ends, strict=True):
        parts.append(element("text", name, x=right + 9, y=place + 4, style=f"fill: {colours[named[name].group]}"))
    return svg_file(width, height, title, [*_background(width, height), *parts])
