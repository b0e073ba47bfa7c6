"""Surprisals of a sentence's words by several models, as bars in the same columns and on one scale."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from treelm.figures.svg import FONT, Drawing, below, box, colour_class, element, heading, join, text, text_width

_HEIGHT = 64  # of the highest bar


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
    base = FONT + 20 + _HEIGHT
    parts = [text(0, FONT, one.name)]
    for number, (word, bits, is_unknown) in enumerate(zip(words, one.bits, one.is_unknown, strict=True)):
        size = _HEIGHT * min(bits / highest, 1.0)
        middle = column * (number + 0.5)
        parts.append(box(middle - 11, base - size, 22, size, f"bar {colour_class(one.look)}"))
        parts.append(text(middle, base - size - 4, f"{bits:.1f}{'*' * is_unknown}", "label middle"))
        parts.append(text(middle, base + FONT + 3, word, "middle"))
    width = column * len(words)
    parts.append(element("line", class_="axis", x1=0, x2=width, y1=base, y2=base))
    return Drawing("plot", one.name, width, base + FONT + 6, join(*parts))
