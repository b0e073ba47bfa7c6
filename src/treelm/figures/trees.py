"""Trees as brackets over their words, in columns that several trees of a sentence share."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from treelm.errors import InputError
from treelm.figures.svg import FONT, Drawing, element, join, text, text_width
from treelm.trees.tree import MAX_SVG_HEIGHT, Tree, heights_of

LABEL_FONT, MARGIN = 11, 8
_GAP, _ROW = 9, 19
_COMING = 22  # pixels that open constituents go on beyond the last word


class TreeColumns:
    """A column for each word, wide enough for what stands over it in any of the trees: so that trees align."""

    def __init__(self, words: Sequence[str], trees: Sequence[Tree]) -> None:
        """Find the widths."""
        self.words = tuple(words)
        widths = [max(text_width(word), 14.0) for word in words]
        for tree in trees:
            for label, start, end in reversed(tree.spans()):
                span = sum(widths[start:end]) + _GAP * (end - start - 1)
                widths[end - 1] += max(0.0, text_width(label, LABEL_FONT) - span) if shows_labels(tree) else 0.0
        lefts = list(accumulate((width + _GAP for width in widths), initial=float(MARGIN)))
        self.middles = [left + width / 2 for left, width in zip(lefts, widths, strict=False)]
        self.width = lefts[-1] - _GAP + MARGIN


def shows_labels(tree: Tree) -> bool:
    """Tell whether labels say something: not where all constituents have the same."""
    return len({one.label for one in tree.constituents()}) > 1


def tree_drawing(tree: Tree, title: str) -> Drawing:
    """A tree by itself. Raises ``InputError`` above ``MAX_SVG_HEIGHT``."""
    if tree.height > MAX_SVG_HEIGHT:
        found = f"a tree of {tree.height} levels is too tall for a drawing"
        raise InputError(found, remedy=f"draw a part of at most {MAX_SVG_HEIGHT} levels")
    return draw_tree(tree, TreeColumns(tree.words(), [tree]), title)


def draw_tree(
    tree: Tree, columns: TreeColumns, title: str, gold: Tree | None = None, *, is_open: bool = False
) -> Drawing:
    """Draw the constituents of a tree as brackets over the words in ``columns``.

    Constituents that ``gold`` does not have are dashed. If the tree ``is_open``, constituents with the last word go on
    to its right, because what else they will hold has not been read yet.
    """
    heights = heights_of(tree)
    labelled = is_open or shows_labels(tree)
    agreed = None if gold is None else {(start, end) for _, start, end in gold.spans()}
    base = MARGIN + LABEL_FONT + _ROW * heights[id(tree)]
    middles: dict[int, float] = {}
    stops: dict[int, int] = {}  # the word after each constituent
    lines, labels = [], []
    for node, (_, start, end) in zip(reversed(tree.constituents()), reversed(tree.spans()), strict=True):
        leaf = start
        ends: list[tuple[float, float]] = []  # the place of each child, and the line that leads down to it
        for child in node.children:
            if isinstance(child, str):
                ends.append((columns.middles[leaf], base))
                leaf += 1
            else:
                ends.append((middles[id(child)], _level(base, heights[id(child)])))
                leaf = stops[id(child)]
        first, last, y = ends[0][0], ends[-1][0], _level(base, heights[id(node)])
        middles[id(node)], stops[id(node)] = (first + last) / 2, end
        if not node.label and is_open:
            continue  # stands for a word that no constituent holds yet
        path = f"M{first:.1f} {y:.1f}H{last:.1f}" + "".join(f"M{x:.1f} {y:.1f}V{below:.1f}" for x, below in ends)
        is_other = agreed is not None and (start, end) not in agreed
        lines.append(element("path", class_="branch other" if is_other else "branch", d=path))
        if is_open and end == len(columns.words):
            coming = f"M{last:.1f} {y:.1f}H{columns.width + _COMING:.1f}"
            lines.append(element("path", class_="branch coming", d=coming))
        if labelled and node.label:
            labels.append(text(middles[id(node)], y + 4, node.label, "label"))
    words = [
        text(middle, base + FONT + 1, word, "word") for word, middle in zip(columns.words, columns.middles, strict=True)
    ]
    width = columns.width + (_COMING if is_open else 0)
    return Drawing("tree", title, width, base + FONT + MARGIN, join(*reversed(lines), *reversed(labels), *words))


def _level(base: float, height: int) -> float:
    return base - 4 - _ROW * height + LABEL_FONT / 2
