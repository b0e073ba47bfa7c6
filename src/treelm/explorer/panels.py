"""What a model makes of the words so far, as cards of the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from treelm.explorer.reading import Look
from treelm.figures.report.sentences import drawn_analyses
from treelm.figures.report.templates import render
from treelm.figures.structures import PICTURES
from treelm.figures.trees import tree_drawing
from treelm.trees.tree import MAX_SVG_HEIGHT


class Panel(NamedTuple):
    """A part of the page in which each model that has something to show has a card."""

    identifier: str
    title: str
    caption: str
    layout: str = "cards"
    key: Mapping[str, str] = {}
    """What the colours mean, by the class that has them."""


NEXT = Panel(
    "next",
    "What comes next",
    "The most probable next words, or parts of words where a model reads those, and the end of the sentence.",
    layout="cards small",
)
TREES = Panel(
    "trees",
    "The best tree so far",
    "What is open is closed. Without labels: the model predicts none.",
)
BEAM = Panel(
    "beam",
    "Analyses in the beam",
    "Partial trees that the search holds after this word, with their probabilities given the words. Constituents whose "
    "line goes on to the right are open.",
    layout="cards whole",
)
STRUCTURES = tuple(
    Panel(one.name.replace(" ", "-"), one.name.capitalize(), one.caption, one.layout, one.key) for one in PICTURES
)
PANELS = (NEXT, TREES, BEAM, *STRUCTURES)


def cards_of(look: Look, name: str, number: int, words: Sequence[str]) -> dict[str, str]:
    """The cards of a model after some words, by the panel that each belongs to. ``number`` is that of its look."""
    found: list[tuple[Panel, dict[str, Any]]] = []
    if look.candidates:
        found.append((NEXT, {"candidates": look.candidates}))
    if look.tree is not None and look.tree.height <= MAX_SVG_HEIGHT:
        found.append((TREES, {"drawing": tree_drawing(look.tree, f"tree of {name}")}))
    if look.analyses:
        found.append((BEAM, {"analyses": drawn_analyses(look.analyses, words, name)}))
    for panel, picture in zip(STRUCTURES, PICTURES, strict=True):
        if look.structure is not None and picture.of([look.structure]) is not None:
            found.append((panel, {"drawing": picture.draw(look.structure)}))
    return {
        panel.identifier: str(render("explorer/card.html.j2", name=name, number=number, **content)).strip()
        for panel, content in found
    }
