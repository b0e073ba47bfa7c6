"""Chosen sentences in every system: trees that align, surprisals, and what only one system has."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

from treelm.evaluation.comparison.figures import Comparison
from treelm.evaluation.comparison.sentences import Distances, SentenceAnalysis, SlotSpans, SpanWeights, WordBits
from treelm.figures.distance_bars import DistanceBars
from treelm.figures.markup import Content, Markup, element, join
from treelm.figures.memory_grid import MemoryGrid
from treelm.figures.report.charts import Series
from treelm.figures.report.looks import key
from treelm.figures.report.parts import Section, details, figure, looks_of, plain_table, run_name, scrolled
from treelm.figures.report.sentence_charts import TreeColumns, draw_tree, drawing, surprisal_chart
from treelm.figures.span_attention import span_grid
from treelm.trees.tree import MAX_SVG_HEIGHT, Tree

_CARD_MARGINS = 34  # pixels left and right of a drawing
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
        parts = (_surprisals(shown, given), _trees(shown), _distances(shown), _attention(shown), _memory(shown))
        yield Section(
            identifier=f"sentence-{number + 1}",
            title=f"Sentence {number + 1}",
            content=join(element("blockquote", sentence), *(part for part in parts if part is not None)),
        )


def _surprisals(shown: list[Shown], given: Collection[str]) -> Markup | None:
    """``given`` are the runs that predict words with their trees."""
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
    table = plain_table("Surprisal in bits", ("run", *words, "(end)", "sum"), rows)
    return join(figure(content, caption), details("The numbers", scrolled(table, "surprisals")))


def _condition(by_words: list[str], by_trees: list[str]) -> str:
    """What the surprisals of a chart are conditional on."""
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
        _card(run_name(name, look), draw_tree(tree, columns, f"tree of {name}", gold), f"tree of {name}")
        for name, look, tree in found
    ]
    caption = "The tree that each system finds, words in the same places. Without labels: the system predicts none."
    if gold is not None:
        cards.insert(0, _card("tree of the file", draw_tree(gold, columns, "tree of the file"), "tree of the file"))
        caption += " Dashed: constituents that the tree of the file does not have."
    narrowest = f"--narrowest:{columns.width + _CARD_MARGINS:.0f}px"
    return figure(element("div", *cards, class_="cards", style=narrowest), caption)


def _card(head: Content, content: Markup, name: str) -> Markup:
    return element("div", element("h3", head), scrolled(content, name), class_="card")


def _own(
    shown: list[Shown],
    draw: Callable[[SentenceAnalysis], Markup | None],
    what: str,
    caption: str,
    class_: str = "cards",
) -> Markup | None:
    """A card for each system that has it."""
    drawn = ((name, look, draw(one)) for name, look, one in shown)
    cards = [_card(run_name(name, look), one, f"{what} of {name}") for name, look, one in drawn if one is not None]
    return figure(element("div", *cards, class_=class_), caption) if cards else None


def _distances(shown: list[Shown]) -> Markup | None:
    return _own(
        shown,
        lambda one: None if one.distances is None else _bars(one.distances),
        "distances",
        "Syntactic distances: the higher the bar, the higher in the tree is the boundary between a symbol and the one "
        "before it. Trees follow from their order. The scale is each system's own.",
    )


def _bars(distances: Distances) -> Markup:
    bars = DistanceBars(symbols=distances.symbols, distances=distances.values, begins_word=distances.begins_word)
    return Markup(bars.as_svg(styled=False))


def _attention(shown: list[Shown]) -> Markup | None:
    return _own(
        shown,
        lambda one: None if one.attention is None else _grid(one.attention),
        "attention over spans",
        "Attention over spans: when a row's symbol is read, how much weight the span has that begins at the column's "
        "symbol and ends just before the row's. The darker, the more; dashed spans are out of reach.",
    )


def _grid(attention: SpanWeights) -> Markup:
    grid, width, height = span_grid(attention.symbols, attention.weights, attention.reach)
    title = f"attention over spans of: {' '.join(attention.symbols[1:-1])}"
    return drawing("attention", title, width, height, Markup(grid))


def _memory(shown: list[Shown]) -> Markup | None:
    kinds = (("split", "the slot where the word attaches (theta)"), ("read", "the word itself"), ("cell", "composed"))
    items = (element("li", element("i", class_=f"of-{kind}"), " ", text) for kind, text in kinds)
    found = _own(
        shown,
        lambda one: None if one.memory is None else _slots(one.memory),
        "memory",
        "What each slot of the memory covers after every word (columns), the root on top.",
        class_="cards whole",
    )
    return None if found is None else join(element("ul", *items, class_="key"), found)


def _slots(memory: SlotSpans) -> Markup:
    grid = MemoryGrid(words=memory.symbols, decisions=memory.decisions, spans=memory.spans)
    return Markup(grid.as_svg(styled=False))
