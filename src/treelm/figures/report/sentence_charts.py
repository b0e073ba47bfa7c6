"""Figures over the words of a sentence: trees above them, surprisals as lines."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from treelm.figures.markup import Markup, element, join
from treelm.figures.report.charts import Series
from treelm.figures.report.looks import colour_class, mark, text_width
from treelm.figures.report.scales import Scale, mark_text
from treelm.trees.tree import Tree

FONT, LABEL_FONT = 13, 11
_GAP, _ROW, _MARGIN = 9, 19, 8
_PLOT, _AXIS = 190, 34  # height of the surprisals' plot, room for its y axis


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
    """Whether labels say something: not where all constituents have the same."""
    return len({one.label for one in tree.constituents()}) > 1


def draw_tree(tree: Tree, columns: TreeColumns, title: str, gold: Tree | None = None) -> Markup:
    """Constituents as brackets over their words; those that the gold tree does not have, if it is given, are dashed."""
    heights, middles = _heights(tree), _middles(tree, columns)
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


def _heights(tree: Tree) -> dict[int, int]:
    heights: dict[int, int] = {}
    for node in reversed(tree.constituents()):
        heights[id(node)] = 1 + max(0 if isinstance(child, str) else heights[id(child)] for child in node.children)
    return heights


def _middles(tree: Tree, columns: TreeColumns) -> dict[int, float]:
    """Where each constituent's label stands: over the middle between its first and last child."""
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
        path = "M" + "L".join(f"{x:.1f} {down:.1f}" for x, down in places)
        parts.append(element("path", class_=f"curve {colour_class(one.look)}", d=path))
        parts += [mark(one.look, *place, tip) for place, tip in zip(places, one.tips, strict=True)]
    return drawing("chart over-words", title, width, _PLOT + FONT + 2 * _MARGIN, join(*parts))


def _surprisal_axis(y: Scale, width: float) -> Markup:
    parts = [element("text", "bits", class_="label", x=2, y=12)]
    for value in y.marks(5):
        place = y(value)
        parts.append(element("line", class_="rule", x1=_AXIS, x2=width - _MARGIN, y1=place, y2=place))
        parts.append(element("text", mark_text(value), class_="tick", x=_AXIS - 6, y=place + 4, text_anchor="end"))
    return join(*parts)


def drawing(class_: str, title: str, width: float, height: float, content: Markup) -> Markup:
    """An SVG in its natural size, with its title."""
    box = f"0 0 {width:.0f} {height:.0f}"
    parts = (element("title", title), content)
    return element("svg", *parts, class_=class_, role="img", viewBox=box, width=round(width), height=round(height))
