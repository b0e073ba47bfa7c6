"""Draws the pictures of docs/gallery.md with models that come with the package: ``python scripts/gallery.py``."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import numpy as np

import treelm
from treelm.evaluation.human import sap
from treelm.evaluation.human.garden_paths import measure_effects
from treelm.evaluation.human.material import score_material
from treelm.explorer.reading import Reader
from treelm.figures.charts import WordBars, mark_text, scale_over, surprisal_drawing
from treelm.figures.report.sentences import drawn_analyses
from treelm.figures.report.templates import share_text
from treelm.figures.structures import figure_of
from treelm.figures.svg import FONT, MARGIN, Drawing, below, box, element, heading, join, mark, text, text_width
from treelm.models.layers.levels import earliest_levels
from treelm.trees.tree import Tree

FOLDER = Path(__file__).parent.parent / "docs" / "pictures" / "gallery"
GARDEN_PATH = ("While", "the", "man", "hunted", "the", "deer", "ran", "into", "the", "woods", ".")
SENTENCE = "The people who live in the old city want a new museum ."


def of_structure(model: str) -> str:
    """What the tree of the sentence follows from in a model, else the tree."""
    lm = treelm.load(model)
    (tree,) = lm.parse([SENTENCE])
    return figure_of(lm, tree).file()


def reading_along(*models: str, num_read: int) -> str:
    """Surprisals of the garden path, and what models make of its first words."""
    readers = [Reader(name, treelm.load(name)) for name in models]
    try:
        return asyncio.run(_read(readers, num_read))
    finally:
        for reader in readers:
            reader.close()


async def _read(readers: Sequence[Reader], num_read: int) -> str:
    words, bars, drawings = GARDEN_PATH[:num_read], [], []
    for number, reader in enumerate(readers):
        steps = [await reader.step(GARDEN_PATH[:end]) for end in range(1, len(GARDEN_PATH) + 1)]
        bits = [step.surprisal_bits for step in steps if step.surprisal_bits is not None]
        bars.append(WordBars(reader.name, number, bits, [step.unknown_class is not None for step in steps]))
        analyses = drawn_analyses((await reader.look(words)).analyses, words, reader.name)
        for rank, one in enumerate(analyses, 1):
            title = f"{reader.name}: analysis {rank}, {share_text(one.share)}"
            drawings.append(below(title, [heading(title, "soft"), one.drawing], gap=4))
    parts = [surprisal_drawing(GARDEN_PATH, bars), heading(f"After {' '.join(words)}"), *drawings]
    return below(f"word by word: {' '.join(GARDEN_PATH)}", parts, gap=18).file()


_PANEL_FONT, _PANEL_ROW, _PANEL_TITLE, _PANEL_AXIS, _PANEL_WIDTH = 12, 20, 26, 34, 220


@dataclass(frozen=True, kw_only=True)
class Dot:
    """A row of a panel: our mean with half of its interval, and the published value."""

    name: str
    label: str
    """Setting of ours, for those who point at it."""
    ours: float | None
    spread: float = 0.0
    published: float | None = None


def dot_panels(panels: Mapping[str, Sequence[Dot]], title: str) -> str:
    """A panel for each heading, rows below one another: a full dot is ours, a ring is published."""
    rows = list(dict.fromkeys(dot.name for dots in panels.values() for dot in dots))
    left = MARGIN + max(text_width(name, _PANEL_FONT) for name in rows) + 14
    bottom = _PANEL_TITLE + _PANEL_ROW * len(rows)
    places = {name: _PANEL_TITLE + _PANEL_ROW * (number + 0.5) for number, name in enumerate(rows)}
    parts = [text(MARGIN, place + 4, name) for name, place in places.items()]
    for panel, dots in panels.items():
        parts.append(text(left, _PANEL_TITLE - 12, panel, "title"))
        ends = [dot.ours + side * dot.spread for dot in dots if dot.ours is not None for side in (-1, 1)]
        values = [*ends, *(dot.published for dot in dots if dot.published is not None)]
        if values:
            x = scale_over(values, left, left + _PANEL_WIDTH)
            for value in x.marks(4):
                parts.append(element("line", class_="rule", x1=x(value), x2=x(value), y1=_PANEL_TITLE, y2=bottom))
                parts.append(text(x(value), bottom + 14, mark_text(value), "tick middle"))
            for dot in dots:
                y = places[dot.name]
                if dot.published is not None:
                    title_of = element("title", f"{dot.name}, published: {dot.published:g}")
                    parts.append(element("circle", title_of, class_="ring", cx=x(dot.published), cy=y, r=4.5))
                if dot.ours is not None:
                    low, high = x(dot.ours - dot.spread), x(dot.ours + dot.spread)
                    parts.append(element("path", class_="curve s0", d=f"M{low:.1f} {y:.1f}H{high:.1f}"))
                    tip = f"{dot.name}, ours ({dot.label}): {dot.ours:.4g} ± {dot.spread:.2g}"
                    parts.append(mark(0, x(dot.ours), y, tip))
        left += _PANEL_WIDTH + 24
    key = "full dots: ours, with the interval of the mean; rings: published"
    parts.append(text(MARGIN, bottom + _PANEL_AXIS + _PANEL_ROW - 6, key))
    return Drawing("plot", title, left + MARGIN, bottom + _PANEL_AXIS + _PANEL_ROW, join(*parts)).file()


def effects(model: str, beside: str) -> str:
    """Effects of garden paths in bits at the critical word and the two after it, beside a published model's."""
    subsets = ("garden-path",)
    ours = measure_effects(score_material(treelm.load(model), sap.material(subsets), name=model), subsets)
    published = measure_effects(sap.published(subsets)[beside], subsets)
    places = ("critical word", "one word later", "two words later")
    panels = {
        place: [
            Dot(
                name=effect.title,
                label=model,
                ours=ours.find(effect.name, region).bits,
                spread=1.96 * ours.find(effect.name, region).standard_error,
                published=published.find(effect.name, region).bits,
            )
            for effect in sap.EFFECTS
            if effect.subset in subsets
        ]
        for region, place in enumerate(places)
    }
    return dot_panels(panels, f"Garden paths in bits: {model} (dots) beside {beside} (rings)")


def search_tree(model: str, num_read: int, most: int = 3) -> str:
    """The most probable analyses after each word of the garden path, each joined to the one that it continues."""
    lm = treelm.load(model)
    state, columns = lm.start(), []
    for word in GARDEN_PATH[:num_read]:
        state = lm.extend(state, [word])
        columns.append({str(one.tree).rstrip(")"): one.share for one in lm.partial_analyses(state, 60)[0]})
    shown = [dict(list(column.items())[:most]) for column in columns]
    for number in reversed(range(1, num_read)):  # what a shown analysis continues is shown too
        parents = (_parent(one, columns[number - 1]) for one in shown[number])
        shown[number - 1] |= {one: columns[number - 1][one] for one in parents if one is not None}
    lines, parts, x = [], [], float(MARGIN)
    places = dict[tuple[int, str], tuple[float, float, float]]()
    for number, analyses in enumerate(shown):
        names = {}
        for one in analyses:
            before = _parent(one, columns[number - 1]) if number else None
            names[one] = f"{one.removeprefix(before or '').strip()}  {100 * analyses[one]:.2g} %"
        width = max(text_width(name) for name in names.values()) + 12
        parts.append(text(x + 6, MARGIN + FONT, GARDEN_PATH[number], "title"))
        for row, (one, name) in enumerate(names.items()):
            y = 46.0 + 34 * row
            places[number, one] = (x, y, x + width)
            parts.append(box(x, y - 14, width, 22, "cell", one, fill_opacity=0.15 + 0.85 * analyses[one]))
            parts.append(text(x + 6, y + 1, name))
            parent = _parent(one, shown[number - 1]) if number else None
            if parent is not None:
                _, there, end = places[number - 1, parent]
                lines.append(_line(f"M{end:.0f} {there - 3:.0f}L{x:.0f} {y - 3:.0f}"))
        x += width + 34
    title = f"search of {' '.join(GARDEN_PATH[:num_read])}"
    height = 46.0 + 34 * max(map(len, shown))
    return Drawing("search", title, x - 34 + MARGIN, height, join(*lines, *parts)).file()


def _line(path: str) -> str:
    return element("path", class_="curve", stroke="#9aa1ad", d=path)


def _parent(analysis: str, before: dict[str, float]) -> str | None:
    """The analysis one word earlier that this one continues; analyses are brackets without the last closing ones."""
    known = [one for one in before if analysis.startswith((f"{one} ", f"{one})"))]
    return max(known, key=len, default=None)


def levels(*sentences: str) -> str:
    """The steps that compose the constituents of a batch, by level: those of one column are computed in one call."""
    names, waits_for, row_of = [], list[tuple[int, int]](), list[int]()
    numbers = count()

    def compose(tree: Tree, row: int) -> int:
        """The steps of a constituent, which reads its children from the left; the number of the last one."""
        last = -1
        for child in tree.children:
            awaited = compose(child, row) if isinstance(child, Tree) else -1
            names.append(f"{tree.label} + {child.label if isinstance(child, Tree) else child}")
            waits_for.append((last, awaited))
            row_of.append(row)
            last = next(numbers)
        return last

    for row, sentence in enumerate(sentences):
        compose(Tree.parse(sentence), row)
    level = earliest_levels(np.array(waits_for))
    width = max(map(text_width, names)) + 14
    lines, parts, places, y = [], [], {}, 40.0
    for row in range(len(sentences)):
        nodes = [node for node in range(len(names)) if row_of[node] == row]
        filled = dict[int, int]()
        for node in nodes:
            column = int(level[node])
            filled[column] = filled.get(column, -1) + 1
            places[node] = (MARGIN + column * (width + 30), y + 30 * filled[column])
        y += 30 * (max(filled.values()) + 1) + 14
    for node, (left, top) in places.items():
        for other in waits_for[node]:
            if other >= 0:
                there = places[other]
                start, end = f"M{there[0] + width:.0f} {there[1] + 11:.0f}", f"L{left:.0f} {top + 11:.0f}"
                parts.append(element("path", class_="curve", stroke="#596273", d=start + end))
        parts.append(box(left, top, width, 22, "cell" if row_of[node] % 2 else "read"))
        parts.append(text(left + 7, top + 15, names[node]))
    for column in range(int(level.max()) + 1):
        parts.append(text(MARGIN + column * (width + 30), MARGIN + FONT, f"call {column + 1}", "title"))
    return Drawing(
        "levels", "levels of a batch", MARGIN + (level.max() + 1) * (width + 30), y, join(*lines, *parts)
    ).file()


PICTURES: dict[str, Callable[[], str]] = {
    "tree": lambda: of_structure("chart-gum-open"),
    "distances": lambda: of_structure("prpn-open-english"),
    "memory": lambda: of_structure("som-open-english"),
    "spans": lambda: of_structure("palm-open-english"),
    "positions": lambda: of_structure("tg-open-english"),
    "stack": lambda: of_structure("pushdown-open-english"),
    "object": lambda: reading_along("rnng-gum-open", "lstm-gum-open", num_read=6),
    "subject": lambda: reading_along("rnng-gum-open", "lstm-gum-open", num_read=7),
    "search": lambda: search_tree("rnng-gum-open", 7),
    "levels": lambda: levels("(S (NP the dog) (VP saw (NP a cat)))", "(S (NP people) (VP sleep))"),
    "garden-paths": lambda: effects("lstm-open-english", "gpt2"),
}
"""What draws each picture, by the name of its file."""


def main(names: Sequence[str]) -> None:
    """Draw pictures, all of them if none is named."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name in names or PICTURES:
        (FOLDER / f"{name}.svg").write_text(PICTURES[name](), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
