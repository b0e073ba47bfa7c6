"""Chosen sentences in every system: trees that align, surprisals, and what only one system has."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from typing import Any, NamedTuple

from treelm.evaluation.comparison.metrics import RunMetrics, SentenceAnalysis, WordBits
from treelm.figures.charts import WordBars
from treelm.figures.report.templates import Section, section, share_text
from treelm.figures.structures import PICTURES, StructurePicture
from treelm.figures.svg import Drawing
from treelm.figures.trees import TreeColumns, draw_tree
from treelm.models.scores import PartialAnalysis
from treelm.trees.tree import MAX_SVG_HEIGHT, Tree

CARD_MARGINS = 34  # pixels left and right of a drawing in a card
Shown = tuple[str, int, SentenceAnalysis]
"""A run's name, its look, and its analysis of a sentence."""


def _sentences(rows: Sequence[RunMetrics]) -> list[list[Shown]]:
    """For each sentence the runs that were analysed on it."""
    count = max((len(row.sentences) for row in rows), default=0)
    return [
        [(row.name, look, row.sentences[number]) for look, row in enumerate(rows) if len(row.sentences) > number]
        for number in range(count)
    ]


def sentence_sections(rows: Sequence[RunMetrics]) -> Iterator[Section]:
    """A section for each sentence, those after the first folded."""
    given = {row.name for row in rows if row.needs_trees}
    for number, shown in enumerate(_sentences(rows), 1):
        parts = _parts(shown, given)
        yield section(f"sentence-{number}", f"Sentence {number}", template="sentence", is_folded=number > 1, **parts)


def sentence_bars(rows: Sequence[RunMetrics]) -> Iterator[tuple[Sequence[str], list[WordBars]]]:
    """Sentences with what is drawn of their surprisals, where a run has some."""
    for shown in _sentences(rows):
        bits = [(name, look, one.bits) for name, look, one in shown if one.bits is not None]
        if bits:
            yield shown[0][2].words, [WordBars(name, look, one.surprisal_bits, one.is_unk) for name, look, one in bits]


def _parts(shown: Sequence[Shown], given: Collection[str]) -> dict[str, Any]:
    """All that is shown of a sentence; ``given`` are the runs that predict words with their trees."""
    words = shown[0][2].words
    bits = [(name, look, one.bits) for name, look, one in shown if one.bits is not None]
    finite = (value for _, _, one in bits for value in one.surprisal_bits if math.isfinite(value))
    structures = [(picture, [*_drawn(picture, shown)]) for picture in PICTURES]
    return {
        "words": words,
        "bits": bits,
        "most": max(1.0, max(finite, default=1.0)),
        "bits_caption": _bits_caption(bits, given),
        "beams": [(name, look, _steps(name, one)) for name, look, one in shown if one.beam],
        "structures": [one for one in structures if one[1]],
        **_trees(shown, words),
    }


def _bits_caption(bits: Sequence[tuple[str, int, WordBits]], given: Collection[str]) -> str:
    """What the surprisals are conditional on, and which are bounds."""
    with_trees = ", ".join(name for name, _, _ in bits if name in given)
    bounds = ", ".join(name for name, _, one in bits if one.is_upper_bound)
    trees = f" (of {with_trees}: and the constituents that end there in the file's tree, which has seen what follows)"
    return (
        f"Surprisal of every word given the words before it{trees if with_trees else ''}, in bits, all models on one "
        f"scale. {f'Upper bounds, by a search that finds part of the probability: {bounds}. ' if bounds else ''}"
        "An unknown word (*) is predicted as its class, which takes fewer bits than the word would."
    )


def _trees(shown: Sequence[Shown], words: Sequence[str]) -> dict[str, Any]:
    found = [(name, look, Tree.parse(one.tree)) for name, look, one in shown if one.tree is not None]
    found = [one for one in found if one[2].height <= MAX_SVG_HEIGHT]
    gold = next((Tree.parse(one.gold) for _, _, one in shown if one.gold is not None), None)
    columns = TreeColumns(words, [*(tree for _, _, tree in found), *([] if gold is None else [gold])])
    cards: list[tuple[str, int | None, Drawing]] = []
    if gold is not None and found:
        cards.append(("tree of the file", None, draw_tree(gold, columns, "tree of the file")))
    cards += [(name, look, draw_tree(tree, columns, f"tree of {name}", gold)) for name, look, tree in found]
    return {"trees": cards, "has_gold": gold is not None, "narrowest": round(columns.width + CARD_MARGINS)}


class DrawnAnalysis(NamedTuple):
    """A partial tree of a beam."""

    share: float
    drawing: Drawing


def drawn_analyses(analyses: Sequence[PartialAnalysis], words: Sequence[str], name: str) -> list[DrawnAnalysis]:
    """Draw analyses after some words in the same columns, but those that are too tall."""
    shown = [one for one in analyses if one.tree.height <= MAX_SVG_HEIGHT]
    columns = TreeColumns(words, [one.tree for one in shown])
    drawn = []
    for rank, one in enumerate(shown, 1):
        title = f"analysis {rank} of {name} after {words[-1]} (word {len(words)}), {share_text(one.share)}"
        drawn.append(DrawnAnalysis(one.share, draw_tree(one.tree, columns, title, is_open=True)))
    return drawn


def _steps(name: str, analysis: SentenceAnalysis) -> list[tuple[str, list[DrawnAnalysis]]]:
    """The partial trees that a search held, word by word."""
    steps = []
    for place, kept in enumerate(analysis.beam, 1):
        read = analysis.words[:place]
        found = [PartialAnalysis(tree=Tree.parse(one.tree), share=one.share) for one in kept]
        steps.append((" ".join(read), drawn_analyses(found, read, name)))
    return steps


def _drawn(picture: StructurePicture, shown: Sequence[Shown]) -> Iterator[tuple[str, int, Drawing]]:
    """The pictures of one kind, which only some systems have."""
    for name, look, one in shown:
        if (structure := picture.of(one.structures)) is not None:
            yield name, look, picture.draw(structure)
