"""Partial trees that a search holds, each with its probability."""

from __future__ import annotations

from collections.abc import Sequence

from treelm.figures.markup import Markup, element, join
from treelm.figures.report.parts import colour_class, scrolled
from treelm.figures.report.trees import TreeColumns, draw_tree
from treelm.models.scores import PartialAnalysis
from treelm.trees.tree import MAX_SVG_HEIGHT


def share_text(share: float) -> str:
    """A probability in percent."""
    return f"{100 * share:.1f}\N{NO-BREAK SPACE}%" if share >= 0.0005 else "<\N{NO-BREAK SPACE}0.1\N{NO-BREAK SPACE}%"


def share_bar(share: float, look: int) -> Markup:
    """A probability as a bar."""
    fill = element("div", class_=f"fill {colour_class(look)}", style=f"width:{100 * share:.1f}%")
    return element("div", fill, class_="track")


def analyses_list(analyses: Sequence[PartialAnalysis], words: Sequence[str], name: str, look: int) -> Markup:
    """Analyses after some words, in their order, and how probable all others are together."""
    shown = [one for one in analyses if one.tree.height <= MAX_SVG_HEIGHT]
    columns = TreeColumns(words, [one.tree for one in shown])
    items = []
    for rank, one in enumerate(shown, 1):
        title = f"analysis {rank} of {name} after {words[-1]} (word {len(words)}), {share_text(one.share)}"
        share = element("div", share_text(one.share), share_bar(one.share, look), class_="share")
        items.append(element("li", share, scrolled(draw_tree(one.tree, columns, title, is_open=True), title)))
    rest = max(0.0, 1 - sum(one.share for one in shown))
    note = element("p", f"all others: {share_text(rest)}", class_="rest")
    return join(element("ol", *items, class_="analyses"), note)
