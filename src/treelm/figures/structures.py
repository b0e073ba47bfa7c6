"""Pictures of what the trees of systems follow from, by the kind of the record that a system's ``structure`` gives."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from math import sqrt
from typing import Any, NamedTuple

from markupsafe import Markup

from treelm.figures.svg import (
    FONT,
    MARGIN,
    Drawing,
    below,
    beside,
    box,
    element,
    heading,
    join,
    text,
    text_width,
    upright,
)
from treelm.figures.trees import tree_drawing
from treelm.models.base import LanguageModel
from treelm.models.capabilities import structure_of
from treelm.models.structures import Distances, SlotSpans, SpanWeights, StackAttention, StackTape, Structure
from treelm.trees.tree import Tree

OUTSIDE = "out of reach (max_span)"
_FAINTEST = 0.05  # opacity of what is seen and not attended to
_LINE = 92  # characters of a caption


def distances_drawing(found: Distances) -> Drawing:
    """Draw a bar for each token: the distance between it and the token before (Fig. 4, Shen et al. 2018).

    Where words consist of several tokens, the bars before words have a colour of their own.
    """
    left, height, gap = MARGIN + 32.0, 120, 10
    base, x, parts, largest = MARGIN + height, left, [], max(found.values, default=0.0)
    for token, value, begins in zip(found.tokens, found.values, found.begins_word, strict=True):
        share = value / largest if largest > 0 else 0.0
        width = max(text_width(token), 1.5 * FONT * 0.6)
        bar = min(width, 1.2 * FONT)
        kind = "bar end" if begins and not all(found.begins_word) else "bar"
        place = (x + (width - bar) / 2, base - share * height, bar, share * height)
        parts += [box(*place, kind, f"{token}: {value:.3g}"), text(x + width / 2, base + FONT + 6, token)]
        x += width + gap
    axis = [text(left - 9, y, f"{value:.2g}", "tick") for value, y in {0.0: base, largest: MARGIN}.items()]
    axis.append(element("line", class_="axis", x1=left - 5, x2=x, y1=base, y2=base))
    title = f"distances before: {' '.join(found.tokens)}"
    return Drawing("distances", title, x - gap + MARGIN, base + FONT + MARGIN, join(*axis, *parts))


def _grid(
    kind: str, title: str, rows: Sequence[str], columns: Sequence[str], cell: int, cells: Iterable[str]
) -> Drawing:
    """A grid of ``cells``, drawn from its corner, with names of rows, and of columns, which stand upright."""
    edge = MARGIN + max(text_width(name) for name in (*rows, *columns)) + 8
    names = [upright(edge + cell * (number + 0.7), edge - 6, name) for number, name in enumerate(columns)]
    names += [text(edge - 6, edge + cell * (row + 0.75), name, "row") for row, name in enumerate(rows)]
    grid = element("g", *cells, transform=f"translate({edge:.0f} {edge:.0f})")
    width, height = edge + cell * len(columns) + MARGIN, edge + cell * len(rows) + MARGIN
    return Drawing(kind, title, width, height, join(*names, grid))


def spans_drawing(found: SpanWeights) -> Drawing:
    """Draw the weights of the spans that each token attends to when it is read.

    Row t, column i is the span from token i to token t - 1. A span that is longer than ``reach[t]`` is out of reach.
    """
    cell, parts = 24, []
    for row, weights in enumerate(found.weights[1:], 1):
        for column, weight in enumerate(weights):
            place = (cell * column, cell * (row - 1), cell - 2, cell - 2)
            if row - column > found.reach[row]:
                parts.append(box(*place, "outside", OUTSIDE))
            else:
                parts.append(box(*place, "weight", f"{weight:.3f}", fill_opacity=round(weight, 3)))
    title = f"attention over spans of: {' '.join(found.tokens[1:-1])}"
    return _grid("attention", title, found.tokens[1:], found.tokens[:-1], cell, parts)


def attention_drawing(found: StackAttention) -> Drawing:
    """Which positions of a derivation each one may see (Fig. 2, Sartran et al. 2022)."""
    cell, parts = 18, []
    for row, seen in enumerate(found.seen):
        y, size = cell * row, cell - 2
        parts.append(box(0, y, cell * (row + 1) - 2, size, "hidden", rx=2))
        for column, weight in zip(seen, found.weights[row] if found.weights else [None] * len(seen), strict=True):
            kind = "own" if column == row else "part" if found.composes[row] else "seen"
            opacity = None if weight is None else round(_FAINTEST + (1 - _FAINTEST) * sqrt(weight), 2)
            tip = "" if weight is None else f"{100 * weight:.0f} %"
            parts.append(box(cell * column, y, size, size, kind, tip, rx=2, fill_opacity=opacity))
    return _grid(
        "sight", f"what each position sees of: {' '.join(found.tokens)}", found.tokens, found.tokens, cell, parts
    )


def _write(parts: list[Markup], row: int, x: float, number: int, content: str, kind: str) -> None:
    """Write a text into the middle of a row; ``row`` are its pixels."""
    parts.append(text(x, MARGIN + row * (number + 0.5) + 0.35 * FONT, content, kind))


def used_slots(found: SlotSpans) -> list[int]:
    """The root's slot and those below it down to the lowest that is ever used."""
    num_slots = len(found.spans[0])
    lowest = min(slot for slot in range(num_slots) if any(column[slot] for column in found.spans))
    return list(range(num_slots - 1, lowest - 1, -1))


def _covered(found: SlotSpans, span: tuple[int, int] | None) -> str:
    """The words that a slot holds, or where they begin and end; nothing for an empty slot."""
    covered = found.tokens[slice(*span)] if span else ()
    return " ".join(covered) if len(covered) <= 2 else f"{covered[0]} .. {covered[-1]}"


def memory_drawing(found: SlotSpans) -> Drawing:
    """A memory of slots while a model reads (Fig. 2, Shen et al. 2021): a column for each word, the root on top.

    A slot holds the words that its candidate covers; the slot of the decision and the one below it are marked.
    """
    slots, row = used_slots(found), 34
    names = [*(f"slot {slot}" for slot in slots), "word", "theta"]
    x = left = MARGIN + max(map(text_width, names)) + 16
    parts = list[Markup]()
    write = partial(_write, parts, row)
    for number, name in enumerate(names):
        write(left - 12, number, name, "name")
    for token, theta, spans in zip(found.tokens, found.decisions, found.spans, strict=True):
        contents = [_covered(found, spans[slot]) for slot in slots]
        width = max(map(text_width, (token, *contents))) + 20
        for number, (slot, content) in enumerate(zip(slots, contents, strict=True)):
            kind = "split" if slot == theta else "read" if slot == theta - 1 else "cell"
            y = MARGIN + row * number + 2
            parts.append(box(x, y, width, row - 4, kind if content else "empty", rx=4))
            if content:
                write(x + width / 2, number, content, "content")
        write(x + width / 2, len(slots), token, "word")
        write(x + width / 2, len(slots) + 1, str(theta), "theta")
        x += width + 8
    title = f"memory after each word of: {' '.join(found.tokens[1:])}"
    return Drawing("memory", title, x + MARGIN, row * len(names) + 2 * MARGIN, join(*parts))


def tape_drawing(found: StackTape) -> Drawing:
    """The stack after each word: boxes of constituents over the rows of their words, in a column for each word."""
    row = 24
    x = left = MARGIN + max(map(text_width, found.tokens)) + 12
    parts = list[Markup]()
    write = partial(_write, parts, row)
    for last, token in enumerate(found.tokens):
        width = max(text_width(token), 22) + 10
        write(left - 10, last + 1, token, "name")
        write(x + width / 2, 0, token, "word")
        for start, end in found.stacks[last]:
            kind = "cell" if end <= last else "read" if end - start == 1 else "split"
            parts.append(box(x, MARGIN + row * (start + 1) + 2, width, row * (end - start) - 4, kind, rx=4))
        for number, depth in enumerate(found.depths[last], 1):
            write(x + width / 2, number, str(depth), "depth")
        x += width + 8
    title = f"the stack after each word of: {' '.join(found.tokens)}"
    return Drawing("tape", title, x + MARGIN, row * (len(found.tokens) + 1) + 2 * MARGIN, join(*parts))


class StructurePicture(NamedTuple):
    """A picture of one kind of record, which only some systems have."""

    kind: type[Structure]
    name: str
    draw: Callable[[Any], Drawing]
    caption: str
    layout: str = "cards"  # classes of what holds the pictures of several systems in a page
    key: Mapping[str, str] = {}  # what the colours mean, by the class that has them
    needs_tree: bool = False  # whether the tree stands beside the picture in a file, or below a wide one

    def of(self, found: Iterable[Structure]) -> Structure | None:
        """The record that this draws, if it is among those found."""
        return next((one for one in found if isinstance(one, self.kind)), None)


PICTURES = (
    StructurePicture(
        Distances,
        "distances",
        distances_drawing,
        "Syntactic distances: the higher the bar, the higher in the tree is the boundary between a token and the one "
        "before it. Trees follow from their order. The scale is each system's own.",
        needs_tree=True,
    ),
    StructurePicture(
        SpanWeights,
        "attention over spans",
        spans_drawing,
        "Attention over spans: when a row's token is read, how much weight the span has that begins at the column's "
        "token and ends just before the row's. The darker, the more; dashed spans are out of reach.",
        needs_tree=True,
    ),
    StructurePicture(
        SlotSpans,
        "memory",
        memory_drawing,
        "What each slot of the memory covers after every word (columns), the root on top.",
        layout="cards whole",
        key={"split": "the slot where the word attaches (theta)", "read": "the word itself", "cell": "composed"},
    ),
    StructurePicture(
        StackAttention,
        "what positions see",
        attention_drawing,
        "Attention as a stack: which earlier positions (columns) each position of the derivation (rows) may see. A "
        "closing bracket is read twice: once to compose its constituent, and once to predict what comes next. The "
        "fuller the colour, the more the last layer attends to it.",
        layout="cards whole",
        key={"cell": "seen", "split": "parts of the constituent that is composed", "read": "itself"},
        needs_tree=True,
    ),
    StructurePicture(
        StackTape,
        "stack and tape",
        tape_drawing,
        "The stack after every word (columns): boxes are its constituents, numbers say how many constituents built so "
        "far hold a word (rows), which is what attention sees of the tree.",
        layout="cards whole",
        key={"split": "the constituent just built", "read": "the word alone", "cell": "built before"},
    ),
)


def structure_figure(found: Structure, tree: Tree | None = None, gold: Tree | None = None) -> Drawing:
    """A picture with its caption and the meaning of its colours, beside the tree and the gold tree where they help."""
    one = next(one for one in PICTURES if isinstance(found, one.kind))
    drawing = one.draw(found)
    lines = [heading(line, "soft") for line in textwrap.wrap(one.caption, _LINE)]
    key = [_key_line(kind, meaning) for kind, meaning in one.key.items()]
    trees = {"tree": tree, "tree of the file": gold} if one.needs_tree else {}
    shown = [part for name, one in trees.items() if one for part in (heading(name), tree_drawing(one, name))]
    arrange = below if drawing.width > 2 * drawing.height else beside
    pictures = arrange(drawing.title, [drawing, below("trees", shown)]) if shown else drawing
    return below(drawing.title, [heading(one.name.capitalize()), *lines, *key, pictures], gap=4)


def _key_line(kind: str, meaning: str) -> Drawing:
    content = join(box(0, 2, 18, 12, kind, rx=3), text(26, FONT, meaning, "soft"))
    return Drawing("key", meaning, 26 + text_width(meaning), FONT + 4, content)


def figure_of(lm: LanguageModel, tree: Tree, gold: Tree | None = None) -> Drawing:
    """Draw what the tree that a model has found of a sentence follows from, or the tree if there is no such structure.

    ``gold`` is drawn beside it where that helps. A notebook shows the drawing. Raises ``InputError`` for a tree that is
    too tall to be drawn.
    """
    found = structure_of(lm, tree.words())
    return tree_drawing(tree, "tree") if found is None else structure_figure(found, tree, gold)
