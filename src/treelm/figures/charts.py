"""Charts over linear and logarithmic axes, and surprisals of a sentence's words by several models as bars."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from markupsafe import Markup

from treelm.figures.svg import FONT, Drawing, below, box, colour_class, element, heading, join, mark, text, text_width

WIDE, NARROW, ALONE = 560, 364, 900
"""Widths in pixels that a chart is drawn for: beside another one on a screen, on a telephone, alone on a screen."""
_TOP, _BOTTOM, _LEFT, _RIGHT = 26, 40, 46, 14
_HIGHEST = 64  # pixels of the highest bar over words


class Point(NamedTuple):
    """A point with the text that is shown for it.

    ``look`` is the look of its run in a scatter chart; points without it are grey.
    """

    x: float
    y: float
    tip: str = ""
    look: int | None = None


class Axes(NamedTuple):
    """The title of a chart and the names of its axes."""

    title: str  # for those who hear the page
    x: str
    y: str


Chart = tuple[Drawing, Drawing]
"""A chart drawn wide and narrow, with letters of the same size: a page shows the one that fits."""


def line_chart(lines: Sequence[tuple[int, Sequence[Point]]], axes: Axes, *, logarithmic: bool = False) -> Chart:
    """Draw a line for each look through its points, with marks at those that have a tip.

    The x axis begins at 0; the y axis may be logarithmic.
    """
    return _line_chart(lines, axes, WIDE, logarithmic), _line_chart(lines, axes, NARROW, logarithmic)


def _line_chart(lines: Sequence[tuple[int, Sequence[Point]]], axes: Axes, width: int, logarithmic: bool) -> Drawing:
    points = [point for _, own in lines for point in own]
    right, height = width - _RIGHT, 320
    x = scale_over([point.x for point in points], _LEFT, right, zero=True)
    y = scale_over([point.y for point in points], height - _BOTTOM, _TOP, logarithmic=logarithmic)
    parts = [_axes(axes, x, y, right)]
    for look, own in lines:
        path = "M" + "L".join(f"{x(point.x):.1f} {y(point.y):.1f}" for point in own)
        parts.append(element("path", class_=f"curve {colour_class(look)}", d=path))
        parts += [mark(look, x(point.x), y(point.y), point.tip) for point in own if point.tip]
    return Drawing("plot", axes.title, width, height, join(*parts))


def scatter_chart(points: Sequence[Point], axes: Axes, *, is_percent: bool = False) -> Chart:
    """Draw points over a logarithmic x axis.

    The y axis goes from 0 to 100 if values are percentages, else over all points and 0.
    """
    return _scatter_chart(points, axes, ALONE, is_percent), _scatter_chart(points, axes, NARROW, is_percent)


def _scatter_chart(points: Sequence[Point], axes: Axes, width: int, is_percent: bool) -> Drawing:
    right, height = width - _RIGHT, 400
    y = scale_over([0.0, *(point.y for point in points)], height - _BOTTOM, _TOP)
    if is_percent:
        y = Scale(low=0, high=100, start=height - _BOTTOM, end=_TOP)
    x = scale_over([point.x for point in points], _LEFT, right, logarithmic=True)
    parts = [_axes(axes, x, y, right)]
    for point in points:
        across, down = x(point.x), y(point.y)
        if point.look is not None:
            parts.append(mark(point.look, across, down, point.tip))
        else:
            tip = element("title", point.tip)
            parts.append(element("circle", tip, class_="published", cx=across, cy=down, r=4))
    return Drawing("plot", axes.title, width, height, join(*parts))


def _axes(axes: Axes, x: Scale, y: Scale, right: float) -> Markup:
    """Draw both axes: lines at round values of y, marks at round values of x, and their names."""
    bottom = y.start
    parts = []
    for value in y.marks():
        parts.append(element("line", class_="rule", x1=_LEFT, x2=right, y1=y(value), y2=y(value)))
        parts.append(text(_LEFT - 7, y(value) + 4, mark_text(value), "tick end"))
    for value in x.marks(max(3, int((right - _LEFT) / 60))):
        parts.append(element("line", class_="axis", x1=x(value), x2=x(value), y1=bottom, y2=bottom + 4))
        parts.append(text(x(value), bottom + 17, mark_text(value), "tick middle"))
    parts.append(element("line", class_="axis", x1=_LEFT, x2=right, y1=bottom, y2=bottom))
    parts.append(text(2, 14, axes.y, "label"))
    parts.append(text((x.start + x.end) / 2, bottom + 34, axes.x, "label middle"))
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
    """Make a scale on which all values fit with a little room; with ``zero``, it begins at 0 or below."""
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
    if len(found) < 2:  # one mark alone shows no scale
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
    return f"{value:,.0f}" if abs(value) >= 10_000 else f"{round(value, 6):g}"


class WordBars(NamedTuple):
    """A model's surprisals of the words of a sentence."""

    name: str
    look: int
    bits: Sequence[float]
    is_unknown: Sequence[bool]  # whether a word is predicted as its class, which a * says


def surprisal_drawing(words: Sequence[str], models: Iterable[WordBars]) -> Drawing:
    """Draw a row of bars for each model, the words below."""
    models = list(models)
    highest = max([1.0, *(value for one in models for value in one.bits if math.isfinite(value))])
    title = f"surprisal of: {' '.join(words)}"
    return below(title, [heading("Surprisal in bits"), *(_bars(words, one, highest) for one in models)], gap=18)


def _bars(words: Sequence[str], one: WordBars, highest: float) -> Drawing:
    column = max(44.0, *(text_width(word) + 10 for word in words))
    base = FONT + 20 + _HIGHEST
    parts = [text(0, FONT, one.name)]
    for number, (word, bits, is_unknown) in enumerate(zip(words, one.bits, one.is_unknown, strict=True)):
        size = _HIGHEST * min(bits / highest, 1.0)
        middle = column * (number + 0.5)
        parts.append(box(middle - 11, base - size, 22, size, f"bar {colour_class(one.look)}"))
        parts.append(text(middle, base - size - 4, f"{bits:.1f}{'*' * is_unknown}", "label middle"))
        parts.append(text(middle, base + FONT + 3, word, "middle"))
    width = column * len(words)
    parts.append(element("line", class_="axis", x1=0, x2=width, y1=base, y2=base))
    return Drawing("plot", one.name, width, base + FONT + 6, join(*parts))
