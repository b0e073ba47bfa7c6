"""From figures to places: linear and logarithmic axes with round marks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Scale:
    """An axis from ``low`` to ``high``, drawn from ``start`` to ``end`` (pixels; y axes have start > end)."""

    low: float
    high: float
    start: float
    end: float
    logarithmic: bool = False

    def __call__(self, value: float) -> float:
        """Where a value stands."""
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
    return [number * step for number in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]


def _round_up(step: float) -> float:
    """The next of 1, 2, 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(step))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= step * (1 - 1e-9))


def _log_marks(low: float, high: float, most: int) -> list[float]:
    """Of 1, 2, 5 times powers of ten as many as fit; of a short axis, linear marks."""
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
