"""Chosen sentences in every system: trees that align, surprisals, and what only one system has."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple

from treelm.evaluation.comparison.metrics import Comparison, SentenceAnalysis, WordBits
from treelm.figures.distance_bars import DistanceBars
from treelm.figures.markup import Content, Markup, element, join
from treelm.figures.memory_grid import MemoryGrid
from treelm.figures.report.charts import Scale, Series, curve, mark_text
from treelm.figures.report.parts import (
    Section,
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
from treelm.figures.span_attention import span_grid
from treelm.trees.tree import MAX_SVG_HEIGHT, Tree, heights_of

FONT, LABEL_FONT = 13, 11
_GAP, _ROW, _MARGIN = 9, 19, 8
_PLOT, _AXIS = 190, 34  # height of the surprisals' plot, room for its y axis
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


def _own(shown: list[Shown]) -> Iterator[Markup]:
    """The pictures that only some systems have: a card for each of these systems."""
    for one in _OWN:
        drawn = ((name, look, one.draw(analysis)) for name, look, analysis in shown)
        cards = [_card(run_name(name, look), svg, f"{one.name} of {name}") for name, look, svg in drawn if svg]
        if cards:
            yield join(one.key, figure(element("div", *cards, class_=one.layout), one.caption))


def _distances(analysis: SentenceAnalysis) -> Markup | None:
    found = analysis.distances
    return None if found is None else Markup(DistanceBars.of(found).as_svg(styled=False))


def _attention(analysis: SentenceAnalysis) -> Markup | None:
    if (found := analysis.attention) is None:
        return None
    grid, width, height = span_grid(found.tokens, found.weights, found.reach)
    title = f"attention over spans of: {' '.join(found.tokens[1:-1])}"
    return drawing("attention", title, width, height, Markup(grid))


def _memory(analysis: SentenceAnalysis) -> Markup | None:
    found = analysis.memory
    return None if found is None else Markup(MemoryGrid.of(found).as_svg(styled=False))


class _SystemPicture(NamedTuple):
    """A picture that only some systems have."""

    name: str
    draw: Callable[[SentenceAnalysis], Markup | None]
    caption: str
    layout: str = "cards"
    key: Markup = Markup()


_MEMORY_KEY = (("split", "the slot where the word attaches (theta)"), ("read", "the word itself"), ("cell", "composed"))
_OWN = (
    _SystemPicture(
        "distances",
        _distances,
        "Syntactic distances: the higher the bar, the higher in the tree is the boundary between a token and the one "
        "before it. Trees follow from their order. The scale is each system's own.",
    ),
    _SystemPicture(
        "attention over spans",
        _attention,
        "Attention over spans: when a row's token is read, how much weight the span has that begins at the column's "
        "token and ends just before the row's. The darker, the more; dashed spans are out of reach.",
    ),
    _SystemPicture(
        "memory",
        _memory,
        "What each slot of the memory covers after every word (columns), the root on top.",
        layout="cards whole",
        key=element(
            "ul",
            *(element("li", element("i", class_=f"of-{kind}"), " ", text) for kind, text in _MEMORY_KEY),
            class_="key",
        ),
    ),
)


class TreeColumns:
    """A column for each word, wide enough for what stands over it in any of the trees: so that trees align."""

    def __init__(self, words: Sequence[str], trees: Sequence[Tree]) -> None:
        """Find the widths."""
        self.words = tuple(words)
        self.widths = [max(text_width(word, FONT), 14.0) for word in words]
        for tree in trees:
            for label, start, end in reversed(tree.spans()):
                span = sum(self.widths[start:end]) + _GAP * (end - start - 1)
                self.widths[end - 1] += max(0.0, text_width(label, LABEL_FONT) - span) if shows_labels(tree) else 0.0
        lefts = list(accumulate((width + _GAP for width in self.widths), initial=float(_MARGIN)))
        self.middles = [left + width / 2 for left, width in zip(lefts, self.widths, strict=False)]
        self.width = lefts[-1] - _GAP + _MARGIN


def shows_labels(tree: Tree) -> bool:
    """Tell whether labels say something: not where all constituents have the same."""
    return len({one.label for one in tree.constituents()}) > 1


def draw_tree(tree: Tree, columns: TreeColumns, title: str, gold: Tree | None = None) -> Markup:
    """Constituents as brackets over their words; those that the gold tree does not have, if it is given, are dashed."""
    heights, middles = heights_of(tree), _middles(tree, columns)
    labelled = shows_labels(tree)
    top = heights[id(tree)]
    agreed = None if gold is None else {(start, end) for _, start, end in gold.spans()}
    base = _MARGIN + LABEL_FONT + _ROW * top

    def level(node: Tree | str) -> float:
        return base if isinstance(node, str) else base - 4 - _ROW * heights[id(node)] + LABEL_FONT / 2

    lines, labels = [], []
    leaf = 0
    spans = {id(node): span for node, span in zip(tree.constituents(), tree.spans(), strict=True)}
    for node in tree.constituents():
        _, start, end = spans[id(node)]
        ends, leaf = [], start
        for child in node.children:
            ends.append((columns.middles[leaf] if isinstance(child, str) else middles[id(child)], child))
            leaf = leaf + 1 if isinstance(child, str) else spans[id(child)].end
        y = level(node)
        path = f"M{ends[0][0]:.1f} {y:.1f}H{ends[-1][0]:.1f}"
        path += "".join(
            f"M{x:.1f} {y:.1f}V{(base if isinstance(child, str) else level(child)):.1f}" for x, child in ends
        )
        other = agreed is not None and (start, end) not in agreed
        lines.append(element("path", class_="branch other" if other else "branch", d=path))
        if labelled and node.label:
            labels.append(element("text", node.label, class_="label", x=middles[id(node)], y=y + 4))
    words = [
        element("text", word, class_="word", x=middle, y=base + FONT + 1)
        for word, middle in zip(columns.words, columns.middles, strict=True)
    ]
    height = base + FONT + _MARGIN
    return drawing("tree", title, columns.width, height, join(*lines, *labels, *words))


def _middles(tree: Tree, columns: TreeColumns) -> dict[int, float]:
    """The place of each constituent's label, over the middle between its first and last child."""
    nodes, spans = tree.constituents(), tree.spans()
    middles: dict[int, float] = {}
    for node, (_, start, end) in zip(reversed(nodes), reversed(spans), strict=True):
        first, last = node.children[0], node.children[-1]
        left = columns.middles[start] if isinstance(first, str) else middles[id(first)]
        right = columns.middles[end - 1] if isinstance(last, str) else middles[id(last)]
        middles[id(node)] = (left + right) / 2
    return middles


def surprisal_chart(words: Sequence[str], series: Sequence[Series], title: str) -> Markup:
    """A line for each system over evenly spaced words; the x of points are the words' numbers."""
    column = max(62.0, *(text_width(word, FONT) + 12 for word in words))
    width = _AXIS + column * len(words) + _MARGIN
    highest = max(point[1] for one in series for point in one.points)
    y = Scale(low=0, high=max(highest * 1.05, 1.0), start=_PLOT, end=20)
    middles = [_AXIS + column * (number + 0.5) for number in range(len(words))]
    parts = [_surprisal_axis(y, width)]
    for word, middle in zip(words, middles, strict=True):
        parts.append(element("text", word, class_="word", x=middle, y=_PLOT + FONT + 8))
    for one in series:
        places = [(middles[int(number)], y(bits)) for number, bits in one.points]
        parts.append(curve(one.look, places, one.tips))
    return drawing("chart over-words", title, width, _PLOT + FONT + 2 * _MARGIN, join(*parts))


def _surprisal_axis(y: Scale, width: float) -> Markup:
    parts = [element("text", "bits", class_="label", x=2, y=12)]
    for value in y.marks(5):
        place = y(value)
        parts.append(element("line", class_="rule", x1=_AXIS, x2=width - _MARGIN, y1=place, y2=place))
        parts.append(element("text", mark_text(value), class_="tick", x=_AXIS - 6, y=place + 4, text_anchor="end"))
    return join(*parts)
