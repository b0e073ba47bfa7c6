"""Trees drawn with characters, for terminals."""

from __future__ import annotations

import shutil
from collections.abc import Sequence

from rich.cells import cell_len

from treelm.trees.tree import Tree, fold

CUT = "…"
"""Label of the flat constituents that stand for subtrees too deep to be drawn."""
GAP = 2  # cells between neighbouring words
MIN_BRANCHES = 16  # cells that the branches of a drawing on its side have, however long the words are


def draw_tree(tree: Tree, under: Sequence[str] | None = None, *, width: int | None = None) -> str:
    """The tree as text, with ``under`` (a text a word, such as its surprisal) below or beside the words.

    Upright with the words in one row when that fits into ``width`` cells (default: the terminal's width), else on its
    side with one word a line; subtrees that do not fit even so are drawn flat, labelled ``…``, so that no word is lost.
    Raises ``ValueError`` when ``under`` does not have one text a word.

    >>> print(draw_tree(Tree.parse("(S (NP the dog) (VP barks))"), ["2.1", "8.0", "6.4"], width=40))
           S
       ┌───┴────┐
       NP       VP
     ┌─┴──┐     │
    the  dog  barks
    2.1  8.0   6.4
    """
    words = tree.words()
    notes = [""] * len(words) if under is None else list(under)
    if len(notes) != len(words):
        raise ValueError(f"{len(notes)} texts under {len(words)} words")
    available = shutil.get_terminal_size().columns if width is None else width
    columns = [max(cell_len(word), cell_len(note)) for word, note in zip(words, notes, strict=True)]
    if sum(columns) + GAP * (len(words) - 1) <= available:
        layout = _Upright(tree, columns)
        if layout.width <= available:
            return layout.draw(words, [notes] if under is not None else [])
    return _on_its_side(tree, notes, available)


class _Box:
    """The place of a constituent or word in an upright drawing, in cells; ``right`` is the first cell after it."""

    __slots__ = ("center", "children", "height", "label", "left", "right")

    def __init__(self, label: str, children: list[_Box]) -> None:
        """Make a box over its children; columns are set when the whole tree is known."""
        self.label = label
        self.children = children
        self.height: int = 1 + max((child.height for child in children), default=-1)
        self.left = self.right = self.center = 0

    def preorder(self) -> list[_Box]:
        boxes: list[_Box] = []
        todo = [self]
        while todo:
            boxes.append(todo.pop())
            todo.extend(reversed(boxes[-1].children))
        return boxes


class _Upright:
    """A drawing with the words in one row at the bottom and each constituent as low as it can be.

    A constituent has two rows: its label, and the branches to its children.
    """

    def __init__(self, tree: Tree, columns: Sequence[int]) -> None:
        """Find the place of everything; ``columns``: cells that each word needs."""
        top = fold(tree, _boxed)
        assert isinstance(top, _Box)
        self._boxes = top.preorder()
        self._leaves = [box for box in self._boxes if not box.children]
        self._height = top.height
        self._place(list(columns))
        self.width = top.right

    def _place(self, columns: list[int]) -> None:
        """Widen the columns until labels fit over them, then set the boxes from the words up."""
        first, last = self._word_ranges()
        for box in reversed(self._boxes):
            span = columns[first[id(box)] : last[id(box)] + 1]
            missing = cell_len(box.label) - sum(span) - GAP * (len(span) - 1)
            columns[last[id(box)]] += max(0, missing)
        left = 0
        for leaf, column in zip(self._leaves, columns, strict=True):
            leaf.left, leaf.right, leaf.center = left, left + column, left + (column - 1) // 2
            left += column + GAP
        for box in reversed(self._boxes):
            if box.children:
                box.left, box.right = box.children[0].left, box.children[-1].right
                box.center = (box.children[0].center + box.children[-1].center) // 2

    def _word_ranges(self) -> tuple[dict[int, int], dict[int, int]]:
        """The first and the last word of each box."""
        first = {id(leaf): i for i, leaf in enumerate(self._leaves)}
        last = dict(first)
        for box in reversed(self._boxes):
            if box.children:
                first[id(box)] = first[id(box.children[0])]
                last[id(box)] = last[id(box.children[-1])]
        return first, last

    def draw(self, words: Sequence[str], rows_below: Sequence[Sequence[str]]) -> str:
        """The lines of the drawing."""
        canvas = [[" "] * self.width for _ in range(2 * self._height + 1 + len(rows_below))]
        for box in self._boxes:
            if box.children:
                self._draw_branches(canvas, box)
                _write(canvas[self._row(box)], box.label, box)
        for row, texts in enumerate([words, *rows_below], start=2 * self._height):
            for leaf, text in zip(self._leaves, texts, strict=True):
                _write(canvas[row], text, leaf)
        return "\n".join("".join(row).rstrip(" ") for row in canvas)

    def _row(self, box: _Box) -> int:
        return 2 * (self._height - box.height)

    def _draw_branches(self, canvas: list[list[str]], box: _Box) -> None:
        row = self._row(box) + 1
        centers = [child.center for child in box.children]
        for cell in range(centers[0], centers[-1] + 1):
            ends = (cell == centers[0]) - (cell == centers[-1])
            canvas[row][cell] = _BRANCHES[ends if len(centers) > 1 else None, cell in centers, cell == box.center]
        for child in box.children:
            for below in range(row + 1, self._row(child)):
                canvas[below][child.center] = "│"


# By: left end (1), right end (-1) or between (0); whether a child is below; whether the label is above.
_BRANCHES = {
    (None, True, True): "│",
    (1, True, False): "┌",
    (-1, True, False): "┐",
    (0, False, False): "─",
    (0, True, False): "┬",
    (0, False, True): "┴",
    (0, True, True): "┼",
}


def _boxed(label: str, children: Sequence[_Box | str]) -> _Box:
    return _Box(label, [_Box(child, []) if isinstance(child, str) else child for child in children])


def _write(row: list[str], text: str, box: _Box) -> None:
    """Write text around the centre of its box, not beyond it; wide characters take two cells."""
    size = cell_len(text)
    start = max(box.left, min(box.center - (size - 1) // 2, box.right - size))
    if size:
        row[start : start + size] = [text, *[""] * (size - 1)]


def _on_its_side(tree: Tree, notes: Sequence[str], available: int) -> str:
    """One word a line, the branches from the left, the words in one column."""
    words = tree.words()
    word_cells = max(map(cell_len, words))
    note_cells = max(map(cell_len, notes))
    beside = 1 + word_cells + (GAP + note_cells if note_cells else 0)
    branches = _branch_lines(tree, max(MIN_BRANCHES, available - beside))
    cells = max(map(cell_len, branches))
    lines = []
    for branch, word, note in zip(branches, words, notes, strict=True):
        line = f"{branch}{'─' * (cells - cell_len(branch))} {word}"
        padding = cells + 1 + word_cells + GAP + note_cells - cell_len(line) - cell_len(note)
        lines.append((line + " " * padding + note).rstrip(" "))
    return "\n".join(lines)


def _branch_lines(tree: Tree, available: int) -> list[str]:
    """The branches that lead to each word, at most ``available`` cells wide unless the top's label is wider."""
    lines: list[str] = []
    branch = ""
    todo: list[tuple[Tree | str, str | None, str]] = [(tree, "", "")]
    while todo:  # a node, the start of its first line (None: goes on with the line), and that of its other lines
        node, start, below = todo.pop()
        branch = branch if start is None else start
        if isinstance(node, str):
            lines.append(branch)
            continue
        label, children = _fitted(node, available - cell_len(branch))
        below += " " * (cell_len(label) + 1)
        branch += f"{label}─┬─" if len(children) > 1 else f"{label}───"
        first, *others = children
        for i, child in enumerate(reversed(others)):
            todo.append((child, below + ("├─" if i else "└─"), below + ("│ " if i else "  ")))
        todo.append((first, None, below + ("│ " if others else "  ")))
    return lines


def _fitted(node: Tree, available: int) -> tuple[str, Sequence[Tree | str]]:
    """Label and children of a constituent; its words only when they, with a cut below, would not fit."""
    inner = any(isinstance(child, Tree) for child in node.children)
    needed = cell_len(node.label) + 3 + (cell_len(CUT) + 3 if inner else 0)
    return (node.label, node.children) if needed <= available else (CUT, node.words())
