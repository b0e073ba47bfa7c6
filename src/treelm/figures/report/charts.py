"""Small charts as SVG, over linear and logarithmic axes. Colours are the page's (``style.css``)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from treelm.figures.markup import Markup, element, join
from treelm.figures.report.parts import colour_class, drawing, mark, text_width

WIDE, NARROW = 560, 364
"""Widths in pixels that a figure is drawn for: beside another one on a screen, alone on a telephone."""
FONT = 12
_TOP, _BOTTOM, _LEFT, _RIGHT = 26, 40, 46, 14
_OUTSIDE = 72  # width of the strip for points without a place on the x axis


@dataclass(frozen=True, kw_only=True)
class Series:
    """The points of one run, in order, each with what is to be said of it."""

    name: str
    look: int
    points: tuple[tuple[float, float], ...]
    tips: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Dot:
    """A point of a scatter; of grey ones ``look`` is None, and ``x`` of those that have no place on the axis."""

    name: str
    x: float | None
    y: float
    tip: str
    look: int | None = None


@dataclass(frozen=True, kw_only=True)
class Interval:
    """A point with an interval above and below it; without one, the point alone."""

    x: float
    y: float
    tip: str
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, kw_only=True)
class Axes:
    """The words of a chart."""

    title: str  # for those who hear the page
    x: str
    y: str


def for_both_widths(draw: Callable[[int], Markup], wide: int = WIDE) -> Markup:
    """A chart drawn twice: the page shows the one that fits, with letters of the same size."""
    return join(element("div", draw(wide), class_="wide"), element("div", draw(NARROW), class_="narrow"))


def line_chart(series: Sequence[Series], axes: Axes, width: int, height: int = 320) -> Markup:
    """A line for each series over a logarithmic y axis; a key beside the chart says which is which."""
    right = width - _RIGHT
    points = [point for one in series for point in one.points]
    x = scale_over([point[0] for point in points], _LEFT, right, zero=True)
    y = scale_over([point[1] for point in points], height - _BOTTOM, _TOP, logarithmic=True)
    lines = (curve(one.look, [(x(first), y(second)) for first, second in one.points], one.tips) for one in series)
    return drawing("chart", axes.title, width, height, join(_axes(axes, x, y, right), *lines))


def curve(look: int, places: Sequence[tuple[float, float]], tips: Sequence[str]) -> Markup:
    """A run's line through places of a chart, with its mark at each."""
    path = "M" + "L".join(f"{across:.1f} {down:.1f}" for across, down in places)
    marks = (mark(look, *place, tip) for place, tip in zip(places, tips, strict=True))
    return join(element("path", class_=f"curve {colour_class(look)}", d=path), *marks)


def spread(places: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Sorted places moved apart by at least ``gap``, within ``low`` and ``high`` if they all fit."""
    moved: list[float] = []
    for place in places:
        moved.append(max(place, moved[-1] + gap) if moved else max(place, low))
    limit = high
    for number in range(len(moved) - 1, -1, -1):
        moved[number] = min(moved[number], limit)
        limit = moved[number] - gap
    return moved


def scatter_chart(
    dots: Sequence[Dot], axes: Axes, width: int, height: int = 400, *, outside: str = "", is_percent: bool = True
) -> Markup:
    """Points over a logarithmic x axis and a y axis from 0 to 100, or one that all points and 0 fit on.

    ``outside`` names the strip for points without x.
    """
    placed = [dot for dot in dots if dot.x is not None]
    right = width - _RIGHT - (_OUTSIDE if len(placed) < len(dots) else 0)
    if is_percent:
        y = Scale(low=0, high=100, start=height - _BOTTOM, end=_TOP)
    else:
        y = scale_over([0.0, *(dot.y for dot in dots)], height - _BOTTOM, _TOP)
    x = scale_over([dot.x for dot in placed if dot.x is not None] or [10, 100], _LEFT, right, logarithmic=True)
    parts = [_axes(axes, x, y, right)]
    if len(placed) < len(dots):
        size = {"width": _OUTSIDE, "height": height - _BOTTOM - _TOP}
        parts.append(element("rect", class_="strip", rx=4, x=right + 10, y=_TOP, **size))
        middle = right + 10 + _OUTSIDE / 2
        parts.append(element("text", outside, class_="tick", x=middle, y=height - _BOTTOM + 16, text_anchor="middle"))
    else:
        middle = right
    places = [(middle if dot.x is None else x(dot.x), y(dot.y)) for dot in dots]
    placed_runs = [(dot, *place) for dot, place in zip(dots, places, strict=True) if dot.look is not None]
    parts.append(_dot_labels(placed_runs, float(width)))
    parts += [_dot(dot, *place) for dot, place in zip(dots, places, strict=True)]
    return drawing("chart", axes.title, width, height, join(*parts))


def interval_chart(series: Sequence[Sequence[Interval]], axes: Axes, width: int, height: int = 320) -> Markup:
    """A line through the points of each series, with their intervals, over linear axes; the look is its number."""
    points = [point for own in series for point in own]
    right = width - _RIGHT
    x = scale_over([point.x for point in points], _LEFT, right)
    ends = [end for point in points for end in (point.low, point.y, point.high) if end is not None]
    y = scale_over(ends, height - _BOTTOM, _TOP)
    bars = (
        element("path", class_=f"curve {colour_class(look)}", d=f"M{x(one.x):.1f} {y(one.low):.1f}V{y(one.high):.1f}")
        for look, own in enumerate(series)
        for one in own
        if one.low is not None and one.high is not None
    )
    lines = (
        curve(look, [(x(one.x), y(one.y)) for one in own], [one.tip for one in own]) for look, own in enumerate(series)
    )
    return drawing("chart", axes.title, width, height, join(_axes(axes, x, y, right), *bars, *lines))


def _dot(dot: Dot, x: float, y: float) -> Markup:
    if dot.look is not None:
        return mark(dot.look, x, y, dot.tip)
    return element("circle", element("title", dot.tip), class_="published", cx=x, cy=y, r=4)


def _dot_labels(dots: Sequence[tuple[Dot, float, float]], right: float) -> Markup:
    """Names beside the runs' points where there is room; the key has them all."""
    taken = [(x - 6, y - 6, x + 6, y + 6) for _, x, y in dots]
    labels = []
    for dot, x, y in dots:
        width = text_width(dot.name, FONT)
        for left, base in ((x + 9, y + 4), (x - 9 - width, y + 4), (x - width / 2, y - 9), (x - width / 2, y + 18)):
            box = (left, base - FONT, left + width, base + 3)
            if left > _LEFT and left + width < right and not any(_overlap(box, other) for other in taken):
                labels.append(element("text", dot.name, class_="name", x=left, y=base))
                taken.append(box)
                break
    return join(*labels)


Box = tuple[float, float, float, float]


def _overlap(one: Box, other: Box) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def _axes(axes: Axes, x: Scale, y: Scale, right: float) -> Markup:
    """Lines at round values of y, marks below, and what both axes are."""
    bottom = y.start
    parts = []
    for value in y.marks():
        place = y(value)
        parts.append(element("line", class_="rule", x1=_LEFT, x2=right, y1=place, y2=place))
        text = mark_text(value)
        parts.append(element("text", text, class_="tick", x=_LEFT - 7, y=place + 4, text_anchor="end"))
    for value in x.marks(max(3, int((right - _LEFT) / 60))):
        parts.append(element("line", class_="axis", x1=x(value), x2=x(value), y1=bottom, y2=bottom + 4))
        text = mark_text(value)
        parts.append(element("text", text, class_="tick", x=x(value), y=bottom + 17, text_anchor="middle"))
    parts.append(element("line", class_="axis", x1=_LEFT, x2=right, y1=bottom, y2=bottom))
    parts.append(element("text", axes.y, class_="label", x=2, y=14))
    parts.append(element("text", axes.x, class_="label", x=(x.start + x.end) / 2, y=bottom + 34, text_anchor="middle"))
    return join(*parts)


@dataclass(frozen=True, kw_only=True)
class Scale:
    """An axis from ``low`` to ``high``, drawn from ``start`` to ``end`` (pixels; y axes have start > end)."""

    low: float
    high: float
    start: float
    end: float
    logarithmic: bool = False

    def __call__(self, value: float) -> float:
        """The place of a value."""
        low, high, value = (math.log(one) if self.logarithmic else one for one in (self.low, self.high, value))
        return self.start + (value - low) / (high - low) * (self.end - self.start)

    def marks(self, most: int = 6) -> list[float]:
        """Round values on the axis, not many more than ``most``."""
        return _log_marks(self.low, self.high, most) if self.logarithmic else _marks(self.low, self.high, most)


def scale_over(
    values: Sequence[float], start: float, end: float, *, logarithmic: bool = False, zero: bool = False
) -> Scale:
    """A scale that all values fit on with a little room; ``zero``: it begins at 0."""
    low, high = min(values), max(values)
    if logarithmic:
        room = (high / low) ** 0.04 if high > low else 1.5
        return Scale(low=low / room, high=high * room, start=start, end=end, logarithmic=True)
    low = min(0.0, low) if zero else low
    room = (high - low) * 0.04 or 1.0
    return Scale(low=low if zero else low - room, high=high + room, start=start, end=end)


def _marks(low: float, high: float, most: int) -> list[float]:
    step = _round_up((high - low) / most)
    found = _multiples(step, low, high)
    if len(found) < 2:  # of one alone nobody reads a distance
        found = _multiples(_round_up(step / 2.5 * (1 - 1e-9)), low, high)
    return found


def _multiples(step: float, low: float, high: float) -> list[float]:
    return [number * step for number in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]


def _round_up(step: float) -> float:
    """The next of 1, 2, 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(step))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= step * (1 - 1e-9))


def _log_marks(low: float, high: float, most: int) -> list[float]:
    """Marks at 1, 2, 5 times powers of ten, as many as fit; of a short axis, linear ones."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for factors in ((1, 1.5, 2, 3, 4, 5, 6, 8), (1, 2, 3, 5), (1, 2, 5), (1, 3), (1,)):
        marks = [factor * 10.0**power for power in powers for factor in factors]
        marks = [mark for mark in marks if low <= mark <= high]
        if len(marks) <= most:
            return marks if len(marks) > 1 else _marks(low, high, most)
    return marks


def mark_text(value: float) -> str:
    """A mark of an axis as text."""
    if abs(value) >= 10_000:
        return f"{value:,.0f}"
    return f"{round(value, 6):g}"
