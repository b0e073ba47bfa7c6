"""Pictures of what the trees of systems follow from, by the kind of the record that a system's ``structure`` gives."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from treelm.figures.distance_bars import DistanceBars
from treelm.figures.markup import Markup, element
from treelm.figures.memory_grid import MemoryGrid
from treelm.figures.report.parts import drawing
from treelm.figures.span_attention import span_grid
from treelm.figures.stack_attention import StackAttention
from treelm.figures.stack_tape import TapeGrid
from treelm.models.structures import Distances, SlotSpans, SpanWeights, StackSight, StackTape, Structure


def _distances(found: Distances) -> Markup:
    return Markup(DistanceBars.of(found).as_svg(styled=False))


def _attention(found: SpanWeights) -> Markup:
    grid, width, height = span_grid(found.tokens, found.weights, found.reach)
    title = f"attention over spans of: {' '.join(found.tokens[1:-1])}"
    return drawing("attention", title, width, height, Markup(grid))


def _memory(found: SlotSpans) -> Markup:
    return Markup(MemoryGrid.of(found).as_svg(styled=False))


def _sight(found: StackSight) -> Markup:
    return Markup(StackAttention(sight=found).as_svg(styled=False))


def _tape(found: StackTape) -> Markup:
    return Markup(TapeGrid(tape=found).as_svg(styled=False))


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


def _key(**kinds: str) -> Markup:
    """What the colours of a picture mean."""
    entries = (element("li", element("i", class_=f"of-{kind}"), " ", text) for kind, text in kinds.items())
    return element("ul", *entries, class_="key")


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
        key=_key(split="the slot where the word attaches (theta)", read="the word itself", cell="composed"),
    ),
    StructurePicture(
        StackSight,
        "what positions see",
        _sight,
        "Attention as a stack: which earlier positions (columns) each position of the derivation (rows) may see. A "
        "closing bracket is read twice: once to compose its constituent, and once to predict what comes next. The "
        "fuller the colour, the more the last layer attends to it.",
        layout="cards whole",
        key=_key(cell="seen", split="parts of the constituent that is composed", read="itself"),
    ),
    StructurePicture(
        StackTape,
        "stack and tape",
        _tape,
        "The stack after every word (columns): boxes are its constituents, numbers say how many constituents built so "
        "far hold a word (rows), which is what attention sees of the tree.",
        layout="cards whole",
        key=_key(split="the constituent just built", read="the word alone", cell="built before"),
    ),
)
