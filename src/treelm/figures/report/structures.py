"""Pictures of what the trees of systems follow from, by the kind of the record that a system's ``structure`` gives."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from treelm.figures.distance_bars import DistanceBars
from treelm.figures.markup import Markup, element
from treelm.figures.memory_grid import MemoryGrid
from treelm.figures.report.parts import drawing
from treelm.figures.span_attention import span_grid
from treelm.models.structures import Distances, SlotSpans, SpanWeights, Structure


def _distances(found: Distances) -> Markup:
    return Markup(DistanceBars.of(found).as_svg(styled=False))


def _attention(found: SpanWeights) -> Markup:
    grid, width, height = span_grid(found.tokens, found.weights, found.reach)
    title = f"attention over spans of: {' '.join(found.tokens[1:-1])}"
    return drawing("attention", title, width, height, Markup(grid))


def _memory(found: SlotSpans) -> Markup:
    return Markup(MemoryGrid.of(found).as_svg(styled=False))


class StructurePicture(NamedTuple):
    """A picture of one kind of record, which only some systems have."""

    kind: type[Structure]
    name: str
    draw: Callable[[Any], Markup]
    caption: str
    layout: str = "cards"
    key: Markup = Markup()

    def of(self, found: Iterable[Structure]) -> Structure | None:
        """The record that this draws, if it is among those found."""
        return next((one for one in found if isinstance(one, self.kind)), None)


_MEMORY_KEY = (("split", "the slot where the word attaches (theta)"), ("read", "the word itself"), ("cell", "composed"))
PICTURES = (
    StructurePicture(
        Distances,
        "distances",
        _distances,
        "Syntactic distances: the higher the bar, the higher in the tree is the boundary between a token and the one "
        "before it. Trees follow from their order. The scale is each system's own.",
    ),
    StructurePicture(
        SpanWeights,
        "attention over spans",
        _attention,
        "Attention over spans: when a row's token is read, how much weight the span has that begins at the column's "
        "token and ends just before the row's. The darker, the more; dashed spans are out of reach.",
    ),
    StructurePicture(
        SlotSpans,
        "memory",
        _memory,
        "What each slot of the memory covers after every word (columns), the root on top.",
        layout="cards whole",
        key=element(
            "ul",
            *(element("li", element("i", class_=f"of-{kind}"), " ", text) for kind, text in _MEMORY_KEY),
            class_="key",
        ),
    ),
)
