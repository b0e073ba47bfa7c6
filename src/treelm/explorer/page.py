"""The page: its frame, which the script fills as answers come, and cards of what models make of the words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

import treelm
from treelm.explorer.reading import Look, Reader
from treelm.explorer.sentences import Limits, Words
from treelm.figures import svg
from treelm.figures.report.sentences import drawn_analyses
from treelm.figures.report.templates import render
from treelm.figures.structures import PICTURES
from treelm.figures.trees import tree_drawing
from treelm.models.base import LanguageModel
from treelm.models.capabilities import Parser, Searching, has
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
    "The most probable next words and the end of the sentence; with … the beginning of a word.",
    layout="cards small",
)
TREES = Panel(
    "trees",
    "The best tree so far",
    "Constituents that are still open are drawn as if they ended here.",
)
BEAM = Panel(
    "beam",
    "Analyses in the beam",
    "Partial trees that the search holds after this word, with their probabilities given the words. Constituents whose "
    "line continues to the right are still open.",
    layout="cards whole",
)
STRUCTURES = tuple(
    Panel(one.name.replace(" ", "-"), one.name.capitalize(), one.caption, one.layout, one.key) for one in PICTURES
)
PANELS = (NEXT, TREES, BEAM, *STRUCTURES)


NOTES = {
    "no trees": "it reads words alone",
    "no surprisals": "it parses, and gives words no probabilities",
    "upper bounds": "its search finds a part of the probability",
}
"""What must be known of a model to read its row, and why it is so."""


def _notes(lm: LanguageModel) -> list[str]:
    """Which of ``NOTES`` a model has."""
    is_so = (not has(lm, Parser), not lm.predicts_words, lm.predicts_words and isinstance(lm, Searching))
    return [note for note, applies in zip(NOTES, is_so, strict=True) if applies]


def cards_of(look: Look, name: str, number: int, words: Words) -> dict[str, str]:
    """The cards of a model after some words, by the panel that each belongs to. ``number`` is that of its look."""
    found: dict[str, dict[str, Any]] = {}
    if look.candidates:
        found[NEXT.identifier] = {"candidates": look.candidates}
    if look.tree is not None and look.tree.height <= MAX_SVG_HEIGHT:
        note = "" if look.has_labels else "without labels, which it does not predict"
        found[TREES.identifier] = {"drawing": tree_drawing(look.tree, f"tree of {name}"), "note": note}
    if look.analyses:
        found[BEAM.identifier] = {"analyses": drawn_analyses(look.analyses, words, name)}
    for panel, kind in zip(STRUCTURES, PICTURES, strict=True):
        if look.structure is not None and kind.of([look.structure]) is not None:
            found[panel.identifier] = {"drawing": kind.draw(look.structure)}
    cards = {one: render("explorer/card.html.j2", name=name, number=number, **values) for one, values in found.items()}
    return {one: str(card).strip() for one, card in cards.items()}


def page(readers: Sequence[Reader], limits: Limits) -> str:
    """The page as text."""
    shown = [{"name": reader.name, "notes": _notes(reader.lm), "is_on": reader.is_on} for reader in readers]
    values = {"readers": shown, "notes": NOTES, "limits": limits, "panels": PANELS, "examples": EXAMPLES}
    return str(render("explorer/page.html.j2", version=treelm.__version__, style=svg.file_style(), **values))


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
