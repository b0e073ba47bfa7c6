"""The page: its frame, which the script fills as answers come, and what a model makes of the words so far as cards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

import treelm
from treelm.explorer.reading import Limits, Look, Reader
from treelm.figures import svg
from treelm.figures.report.sentences import drawn_analyses
from treelm.figures.report.templates import render
from treelm.figures.structures import PICTURES
from treelm.figures.trees import tree_drawing
from treelm.models.capabilities import Searching
from treelm.trees.tree import MAX_SVG_HEIGHT

EXAMPLES = (
    "When the people left the city was still small .",
    "When the war ended the city was still small .",
    "The dog that the cats chase barks .",
)


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


def page(readers: Sequence[Reader], limits: Limits) -> str:
    """The page as text."""
    shown = [{"name": reader.name, "searches": isinstance(reader.lm, Searching)} for reader in readers]
    values = {"readers": shown, "limits": limits, "panels": PANELS, "examples": EXAMPLES}
    return str(render("explorer/page.html.j2", version=treelm.__version__, **values))


@cache
def style() -> str:
    """The report's style, by which drawings look the same here, and the page's own."""
    return svg.style() + _read("treelm.figures.report", "style.css") + _read("treelm.explorer", "explorer.css")


@cache
def script() -> str:
    """The script of the page."""
    return _read("treelm.explorer", "explorer.js")


def _read(package: str, name: str) -> str:
    return files(package).joinpath(name).read_text(encoding="utf-8")
