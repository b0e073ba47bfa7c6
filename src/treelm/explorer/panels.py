"""What a model makes of the words so far, as cards of the page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from treelm.explorer.reading import Candidate, Look
from treelm.figures.markup import Markup, element, join
from treelm.figures.report.parts import colour_class, run_name, scrolled
from treelm.figures.report.structures import PICTURES
from treelm.figures.report.trees import TreeColumns, draw_tree
from treelm.models.scores import PartialAnalysis
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
        yield BEAM, _analyses(look.analyses, name, number, words)
    if look.structure is not None:
        for panel, picture in zip(STRUCTURES, PICTURES, strict=True):
            if picture.of([look.structure]) is not None:
                yield panel, scrolled(picture.draw(look.structure), f"{picture.name} of {name}")


def _card(name: str, number: int, content: Markup) -> Markup:
    return element("div", element("h3", run_name(name, number)), content, class_="card", data_run=number)


def share_text(share: float) -> str:
    """A probability in percent."""
    return f"{100 * share:.1f}\N{NO-BREAK SPACE}%" if share >= 0.0005 else "<\N{NO-BREAK SPACE}0.1\N{NO-BREAK SPACE}%"


def _bar(share: float, number: int) -> Markup:
    fill = element("div", class_=f"fill {colour_class(number)}", style=f"width:{100 * share:.1f}%")
    return element("div", fill, class_="track")


def _candidates(candidates: Sequence[Candidate], name: str, number: int) -> Markup:
    rows = (
        element(
            "tr",
            element("th", one.token, scope="row"),
            element("td", _bar(one.probability, number)),
            element("td", share_text(one.probability)),
        )
        for one in candidates
    )
    caption = element("caption", f"next words by {name}", class_="unseen")
    return element("table", caption, element("tbody", *rows), class_="bars")


def _analyses(analyses: Sequence[PartialAnalysis], name: str, number: int, words: Sequence[str]) -> Markup:
    shown = [one for one in analyses if one.tree.height <= MAX_SVG_HEIGHT]
    columns = TreeColumns(words, [one.tree for one in shown])
    items = []
    for rank, one in enumerate(shown, 1):
        title = f"analysis {rank} of {name}, {share_text(one.share)}"
        share = element("div", share_text(one.share), _bar(one.share, number), class_="share")
        items.append(element("li", share, scrolled(draw_tree(one.tree, columns, title, is_open=True), title)))
    rest = max(0.0, 1 - sum(one.share for one in shown))
    note = element("p", f"all others: {share_text(rest)}", class_="rest")
    return join(element("ol", *items, class_="analyses"), note)
