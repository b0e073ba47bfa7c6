"""What a model makes of the words so far, as cards of the page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from treelm.explorer.reading import Candidate, Look
from treelm.figures.markup import Markup, element
from treelm.figures.report.beams import analyses_list, share_bar, share_text
from treelm.figures.report.parts import run_name, scrolled
from treelm.figures.report.structures import PICTURES
from treelm.figures.report.trees import TreeColumns, draw_tree
from treelm.trees.tree import MAX_SVG_HEIGHT


class Panel(NamedTuple):
    """A part of the page in which each model that has something to show has a card."""

    identifier: str
    title: str
    caption: str
    layout: str = "cards"
    key: Markup = Markup()


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


def cards_of(look: Look, name: str, number: int, words: Sequence[str]) -> dict[str, Markup]:
    """The cards of a model after some words, by the panel that each belongs to. ``number`` is that of its look."""
    return {panel.identifier: _card(name, number, content) for panel, content in _contents(look, name, number, words)}


def _contents(look: Look, name: str, number: int, words: Sequence[str]) -> Iterator[tuple[Panel, Markup]]:
    if look.candidates:
        yield NEXT, _candidates(look.candidates, name, number)
    if look.tree is not None and look.tree.height <= MAX_SVG_HEIGHT:
        title = f"tree of {name}"
        yield TREES, scrolled(draw_tree(look.tree, TreeColumns(words, [look.tree]), title), title)
    if look.analyses:
        yield BEAM, analyses_list(look.analyses, words, name, number)
    if look.structure is not None:
        for panel, picture in zip(STRUCTURES, PICTURES, strict=True):
            if picture.of([look.structure]) is not None:
                yield panel, scrolled(picture.draw(look.structure), f"{picture.name} of {name}")


def _card(name: str, number: int, content: Markup) -> Markup:
    return element("div", element("h3", run_name(name, number)), content, class_="card", data_run=number)


def _candidates(candidates: Sequence[Candidate], name: str, number: int) -> Markup:
    rows = (
        element(
            "tr",
            element("th", one.token, scope="row"),
            element("td", share_bar(one.probability, number)),
            element("td", share_text(one.probability)),
        )
        for one in candidates
    )
    caption = element("caption", f"next words by {name}", class_="unseen")
    return element("table", caption, element("tbody", *rows), class_="bars")
