"""Trees as brackets over their words, in columns that several trees of a sentence share."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from treelm.figures.markup import Markup, element, join
from treelm.figures.report.parts import drawing, text_width
from treelm.trees.tree import Tree, heights_of

FONT, LABEL_FONT = 13, 11
MARGIN = 8
_GAP, _ROW = 9, 19
_COMING = 22  # pixels that open constituents go on beyond the last word


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
        lefts = list(accumulate((width + _GAP for width in self.widths), initial=float(MARGIN)))
        self.middles = [left + width / 2 for left, width in zip(lefts, self.widths, strict=False)]
        self.width = lefts[-1] - _GAP + MARGIN


def shows_labels(tree: Tree) -> bool:
    """Tell whether labels say something: not where all constituents have the same."""
    return len({one.label for one in tree.constituents()}) > 1


def draw_tree(
    tree: Tree, columns: TreeColumns, title: str, gold: Tree | None = None, *, is_open: bool = False
) -> Markup:
    """Constituents as brackets over their words; those that the gold tree does not have, if it is given, are dashed.

    Of an open tree, constituents that hold the last word go on to the right: what they will hold is not read yet.
    """
    heights, middles = heights_of(tree), _middles(tree, columns)
    labelled = is_open or shows_labels(tree)
    top = heights[id(tree)]
    agreed = None if gold is None else {(start, end) for _, start, end in gold.spans()}
    base = MARGIN + LABEL_FONT + _ROW * top

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
        if not node.label and is_open:
            continue  # stands for a word that no constituent holds yet
        other = agreed is not None and (start, end) not in agreed
        lines.append(element("path", class_="branch other" if other else "branch", d=path))
        if is_open and end == len(columns.words):
            coming = f"M{ends[-1][0]:.1f} {y:.1f}H{columns.width + _COMING:.1f}"
            lines.append(element("path", class_="branch coming", d=coming))
        if labelled and node.label:
            labels.append(element("text", node.label, class_="label", x=middles[id(node)], y=y + 4))
    words = [
        element("text", word, class_="word", x=middle, y=base + FONT + 1)
        for word, middle in zip(columns.words, columns.middles, strict=True)
    ]
    height = base + FONT + MARGIN
    width = columns.width + (_COMING if is_open else 0)
    return drawing("tree", title, width, height, join(*lines, *labels, *words))


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
