"""What is seen on the page, as one picture."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from treelm.explorer.reading import Look, Step, Words
from treelm.figures.report.sentences import drawn_analyses
from treelm.figures.report.templates import share_text
from treelm.figures.structures import PICTURES
from treelm.figures.svg import FONT, Drawing, below, box, colour_class, element, heading, join, text, text_width
from treelm.figures.trees import tree_drawing
from treelm.trees.tree import MAX_SVG_HEIGHT

_BARS = 64


@dataclass(frozen=True, kw_only=True)
class Reading:
    """What one model has made of a sentence."""

    name: str
    number: int  # of its look
    steps: Sequence[Step] = ()  # one for each word of the sentence in view
    look: Look | None = None  # at the words that have been read
    refused: str = ""  # why there is none of these


def picture(words: Words, num_read: int, readings: Sequence[Reading]) -> str:
    """The surprisals of a sentence by all models, and what each makes of its first ``num_read`` words, as SVG."""
    parts = list(_parts(words, words[:num_read], readings))
    return below(f"read along: {' '.join(words)}", parts, gap=18).file()


def _parts(words: Words, read: Words, readings: Sequence[Reading]) -> Iterator[Drawing]:
    yield from (heading(f"{one.name}: {one.refused}") for one in readings if one.refused)
    readings = [one for one in readings if not one.refused]
    scored = [one for one in readings if all(step.surprisal_bits is not None for step in one.steps)]
    if scored:
        yield heading("Surprisal in bits")
        bits = [step.surprisal_bits or 0.0 for one in scored for step in one.steps]
        highest = max([1.0, *filter(math.isfinite, bits)])
        yield from (_bars(one, words, highest) for one in scored)
    if read and readings:
        yield heading(f"After {' '.join(read)}")
        for one in readings:
            if one.look is not None:
                yield from _drawings(one, one.look, read)


def _bars(one: Reading, words: Words, highest: float) -> Drawing:
    column = max(44.0, *(text_width(word) + 10 for word in words))
    base = FONT + 20 + _BARS
    parts = [text(0, FONT, one.name)]
    for number, (word, step) in enumerate(zip(words, one.steps, strict=True)):
        bits = step.surprisal_bits or 0.0
        size = _BARS * min(bits / highest, 1.0)
        middle = column * (number + 0.5)
        shown = f"{bits:.1f}{'*' if step.unknown_class is not None else ''}"
        parts.append(box(middle - 11, base - size, 22, size, f"bar {colour_class(one.number)}"))
        parts.append(text(middle, base - size - 4, shown, "label middle"))
        parts.append(text(middle, base + FONT + 3, word, "middle"))
    width = column * len(words)
    parts.append(element("line", class_="axis", x1=0, x2=width, y1=base, y2=base))
    return Drawing("plot", one.name, width, base + FONT + 6, join(*parts))


def _drawings(one: Reading, look: Look, words: Words) -> Iterator[Drawing]:
    """The tree of a model, the beam of a search, and what the tree follows from."""
    if look.tree is not None and look.tree.height <= MAX_SVG_HEIGHT:
        yield _under(f"{one.name}: best tree so far", tree_drawing(look.tree, one.name))
    for rank, each in enumerate(drawn_analyses(look.analyses, words, one.name) if look.analyses else (), 1):
        yield _under(f"{one.name}: analysis {rank}, {share_text(each.share)}", each.drawing)
    for kind in PICTURES:
        if look.structure is not None and kind.of([look.structure]) is not None:
            yield _under(f"{one.name}: {kind.name}", kind.draw(look.structure))


def _under(title: str, drawing: Drawing) -> Drawing:
    return below(title, [heading(title, "soft"), drawing], gap=4)
