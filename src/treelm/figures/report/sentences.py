"""Chosen sentences in every system: trees that align, surprisals, and what only one system has."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from treelm.evaluation.comparison.metrics import Comparison, SentenceAnalysis, WordBits
from treelm.figures.markup import Markup, element, join
from treelm.figures.report.charts import Scale, Series, curve, mark_text
from treelm.figures.report.parts import (
    CARD_MARGINS,
    Section,
    card,
    data_table,
    details,
    drawing,
    figure,
    key,
    looks_of,
    run_name,
    scrolled,
    text_width,
)
from treelm.figures.report.structures import PICTURES
from treelm.figures.report.trees import FONT, MARGIN, TreeColumns, draw_tree
from treelm.models.structures import Structure
from treelm.trees.tree import MAX_SVG_HEIGHT, Tree

_PLOT, _AXIS = 190, 34  # height of the surprisals' plot, room for its y axis
Shown = tuple[str, int, SentenceAnalysis]
"""A run's name, its look, and its analysis of a sentence."""


def sentence_sections(comparison: Comparison) -> Iterator[Section]:
    """A section for each sentence."""
    looks = looks_of(comparison)
    given = {row.name for row in comparison.runs if row.needs_trees}
    count = max((len(row.sentences) for row in comparison.runs), default=0)
    for number in range(count):
        shown = [
            (row.name, looks[row.name], row.sentences[number]) for row in comparison.runs if len(row.sentences) > number
        ]
        sentence = " ".join(shown[0][2].words)
        parts = (_surprisals(shown, given), _trees(shown), *_own(shown))
        yield Section(
            identifier=f"sentence-{number + 1}",
            title=f"Sentence {number + 1}",
            content=join(element("blockquote", sentence), *(part for part in parts if part is not None)),
        )


def _surprisals(shown: list[Shown], given: Collection[str]) -> Markup | None:
    """Chart and table of surprisals; ``given`` are the runs that predict words with their trees."""
    scored = [(name, look, one.bits) for name, look, one in shown if one.bits is not None]
    if not scored:
        return None
    words = shown[0][2].words
    series = [
        Series(
            name=name,
            look=look,
            points=tuple((float(number), value) for number, value in enumerate(bits.surprisal_bits)),
            tips=tuple(f"{name}, {word}: {text}" for word, text in zip(words, _texts(bits), strict=True)),
        )
        for name, look, bits in scored
    ]
    chart = surprisal_chart(words, series, f"surprisal in bits of: {' '.join(words)}")
    content = join(key({look: name for name, look, _ in scored}), scrolled(chart, "surprisal over words"))
    bounds = [name for name, _, bits in scored if bits.is_upper_bound]
    names = [name for name, _, _ in scored]
    caption = _condition([one for one in names if one not in given], [one for one in names if one in given])
    if bounds:
        caption += f"Upper bounds, by a search that finds part of the probability: {', '.join(bounds)}. "
    caption += (
        "An unknown word (* in the numbers) is predicted as its class, which takes fewer bits than the word would."
    )
    rows = [
        (name, *_texts(bits), f"{bits.end_surprisal_bits:.1f}", f"{bits.total_bits:.1f}") for name, _, bits in scored
    ]
    table = data_table("Surprisal in bits", ("run", *words, "(end)", "sum"), rows)
    return join(figure(content, caption), details("The numbers", scrolled(table, "surprisals")))


def _condition(by_words: list[str], by_trees: list[str]) -> str:
    """Begin a caption by saying what the surprisals of a chart are conditional on."""
    lines = "in bits, a line for each system. "
    with_trees = (
        "the words before it and the constituents that end there in the file's tree, which has seen what follows"
    )
    if not by_trees:
        return f"Surprisal of every word given the words before it, {lines}"
    if not by_words:
        return f"Surprisal of every word given {with_trees}, {lines}"
    return f"Surprisal of every word given the words before it (of {', '.join(by_trees)}: given {with_trees}), {lines}"


def _texts(bits: WordBits) -> list[str]:
    return [f"{value:.1f}{'*' * unknown}" for value, unknown in zip(bits.surprisal_bits, bits.is_unk, strict=True)]


def _trees(shown: list[Shown]) -> Markup | None:
    found = [(name, look, Tree.parse(one.tree)) for name, look, one in shown if one.tree is not None]
    found = [one for one in found if one[2].height <= MAX_SVG_HEIGHT]
    if not found:
        return None
    words = shown[0][2].words
    gold = next((Tree.parse(one.gold) for _, _, one in shown if one.gold is not None), None)
    columns = TreeColumns(words, [*(tree for _, _, tree in found), *([] if gold is None else [gold])])
    cards = [
        card(run_name(name, look), draw_tree(tree, columns, f"tree of {name}", gold), f"tree of {name}")
        for name, look, tree in found
    ]
    caption = "The tree that each system finds, words in the same places. Without labels: the system predicts none."
    if gold is not None:
        cards.insert(0, card("tree of the file", draw_tree(gold, columns, "tree of the file"), "tree of the file"))
        caption += " Dashed: constituents that the tree of the file does not have."
    narrowest = f"--narrowest:{columns.width + CARD_MARGINS:.0f}px"
    return figure(element("div", *cards, class_="cards", style=narrowest), caption)


def _structures(analysis: SentenceAnalysis) -> list[Structure]:
    """What an analysis keeps of a system's ``structure``."""
    kept = (analysis.distances, analysis.attention, analysis.memory)
    return [one for one in kept if one is not None]


def _own(shown: list[Shown]) -> Iterator[Markup]:
    """The pictures that only some systems have: a card for each of these systems."""
    for one in PICTURES:
        found = ((name, look, one.of(_structures(analysis))) for name, look, analysis in shown)
        cards = [
            card(run_name(name, look), one.draw(structure), f"{one.name} of {name}")
            for name, look, structure in found
            if structure is not None
        ]
        if cards:
            yield join(one.key, figure(element("div", *cards, class_=one.layout), one.caption))


def surprisal_chart(words: Sequence[str], series: Sequence[Series], title: str) -> Markup:
    """A line for each system over evenly spaced words; the x of points are the words' numbers."""
    column = max(62.0, *(text_width(word, FONT) + 12 for word in words))
    width = _AXIS + column * len(words) + MARGIN
    highest = max(point[1] for one in series for point in one.points)
    y = Scale(low=0, high=max(highest * 1.05, 1.0), start=_PLOT, end=20)
    middles = [_AXIS + column * (number + 0.5) for number in range(len(words))]
    parts = [_surprisal_axis(y, width)]
    for word, middle in zip(words, middles, strict=True):
        parts.append(element("text", word, class_="word", x=middle, y=_PLOT + FONT + 8))
    for one in series:
        places = [(middles[int(number)], y(bits)) for number, bits in one.points]
        parts.append(curve(one.look, places, one.tips))
    return drawing("chart over-words", title, width, _PLOT + FONT + 2 * MARGIN, join(*parts))


def _surprisal_axis(y: Scale, width: float) -> Markup:
    parts = [element("text", "bits", class_="label", x=2, y=12)]
    for value in y.marks(5):
        place = y(value)
        parts.append(element("line", class_="rule", x1=_AXIS, x2=width - MARGIN, y1=place, y2=place))
        parts.append(element("text", mark_text(value), class_="tick", x=_AXIS - 6, y=place + 4, text_anchor="end"))
    return join(*parts)
