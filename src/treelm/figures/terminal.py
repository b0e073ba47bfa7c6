"""Trees drawn with characters, for terminals."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from typing import NamedTuple

from rich.cells import cell_len

from treelm.trees.tree import Tree

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
        drawing = _upright(tree, [words, notes] if under is not None else [words], columns)
        if max(map(cell_len, drawing)) <= available:
            return "\n".join(line.rstrip(" ") for line in drawing)
    return _on_its_side(tree, notes, available)


class _Block(NamedTuple):
    """The drawing of a subtree: lines of equal width, the cell below its label, and how many words it has."""

    lines: list[str]
    width: int
    center: int
    num_words: int


def _upright(tree: Tree, rows: Sequence[Sequence[str]], columns: list[int]) -> list[str]:
    """A drawing with the words in one row at the bottom, ``rows``, and each constituent as low as it can be.

    A constituent has two lines: its label, and the branches to its children. ``columns`` are cells that words need.
    """
    nodes = list(zip(reversed(tree.constituents()), reversed(tree.spans()), strict=True))
    for _, (label, start, end) in nodes:  # widen columns until labels fit over them
        columns[end - 1] += max(0, cell_len(label) - sum(columns[start:end]) - GAP * (end - start - 1))
    blocks: list[_Block] = []  # of what has been drawn, the first on top
    for node, (label, start, _) in nodes:
        children, word = [], start
        for child in node.children:
            if isinstance(child, str):
                width, center = columns[word], (columns[word] - 1) // 2
                children.append(_Block([_placed(row[word], center, width) for row in rows], width, center, 1))
            else:
                children.append(blocks.pop())
            word += children[-1].num_words
        blocks.append(_joined(label, children))
    return blocks[0].lines


def _joined(label: str, children: Sequence[_Block]) -> _Block:
    """A label over the branches to its children."""
    height = max(len(child.lines) for child in children)
    padded, centers, width = [], [], 0
    for child in children:
        stem = _placed("│", child.center, child.width)
        padded.append([stem] * (height - len(child.lines)) + child.lines)
        centers.append(width + child.center)
        width += child.width + GAP
    width -= GAP
    center = (centers[0] + centers[-1]) // 2
    branches = [" "] * width
    for cell in range(centers[0], centers[-1] + 1):
        ends = (cell == centers[0]) - (cell == centers[-1])
        branches[cell] = _BRANCHES[ends if len(centers) > 1 else None, cell in centers, cell == center]
    below = [(" " * GAP).join(line) for line in zip(*padded, strict=True)]
    num_words = sum(child.num_words for child in children)
    return _Block([_placed(label, center, width), "".join(branches), *below], width, center, num_words)


def _placed(text: str, center: int, width: int) -> str:
    """Text around a cell of a line, not beyond it; wide characters take two cells."""
    size = cell_len(text)
    start = max(0, min(center - (size - 1) // 2, width - size))
    return " " * start + text + " " * (width - start - size)


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
