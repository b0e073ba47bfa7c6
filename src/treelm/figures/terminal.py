"""Trees drawn with characters, for terminals."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from typing import NamedTuple

from rich.cells import cell_len

from treelm.trees.tree import Tree

GAP = 2  # cells between neighbouring words


def draw_tree(tree: Tree, under: Sequence[str] | None = None, *, width: int | None = None) -> str:
    """The tree as text, with ``under`` (a text a word, such as its surprisal) below or beside the words.

    Upright with the words in one row when that fits into ``width`` cells (default: the terminal's width), else as an
    outline with one constituent or word a line. Raises ``ValueError`` when ``under`` does not have one text a word.

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
    return _outline(tree, notes, available)


class _Block(NamedTuple):
    """The drawing of a subtree: lines of equal width, the cell below its label, and how many words it has."""

    lines: list[str]
    width: int
    center: int
    num_words: int


def _upright(tree: Tree, rows: Sequence[Sequence[str]], columns: list[int]) -> list[str]:
    """Draw a tree with the texts of its words in ``rows`` at the bottom, and constituents as low as possible.

    ``columns`` are the widths in cells that words need; they are widened until labels fit.
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


def _outline(tree: Tree, notes: Sequence[str], available: int) -> str:
    """A line for each constituent, and for each word with its note, indented by depth as far as there is room."""
    lines: list[tuple[str, str | None]] = []  # what is written, and the note of a word
    words = iter(zip(tree.words(), notes, strict=True))
    todo: list[tuple[Tree | str, int]] = [(tree, 0)]
    most = max(0, available // 2)
    while todo:
        node, depth = todo.pop()
        indent = " " * min(2 * depth, most)
        if isinstance(node, str):
            word, note = next(words)
            lines.append((indent + word, note))
        else:
            lines.append((indent + node.label, None))
            todo += [(child, depth + 1) for child in reversed(node.children)]
    width = max(cell_len(text) for text, note in lines if note is not None)
    beside = max(map(cell_len, notes))
    return "\n".join(
        text if not note else text + " " * (width + GAP + beside - cell_len(text) - cell_len(note)) + note
        for text, note in lines
    )
