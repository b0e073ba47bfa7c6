"""A memory of slots while a model reads a sentence: a grid of slots by words (Fig. 2, Shen et al. 2021)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from unicodedata import east_asian_width

from treelm.figures.markup import escaped, svg_file
from treelm.models.base import LanguageModel
from treelm.models.structures import SlotSpans, of_kind

FONT_SIZE = 13
_CHARACTER = 0.62 * FONT_SIZE  # width of an average character
_ROW, _GAP, _MARGIN = 34, 8, 12
_STYLE = f"""\
text {{ font: {FONT_SIZE}px sans-serif; fill: #1f2933; text-anchor: middle; }}
.name, .theta {{ fill: #52606d; }}
.name {{ text-anchor: end; }}
.word {{ font-weight: bold; }}
.cell {{ fill: #e6eef8; stroke: #7b98bd; }}
.read {{ fill: #fdf1d7; stroke: #c99a2e; }}
.split {{ fill: #cfe3cf; stroke: #4f8a4f; stroke-width: 2; }}
.empty {{ fill: none; stroke: #d9dee4; stroke-dasharray: 3 3; }}
.background {{ fill: #ffffff; }}"""
LEGEND = "green: the slot theta, where the word attaches; yellow: the word itself; blue: composed"


@dataclass(frozen=True, kw_only=True)
class MemoryGrid:
    """The words that each slot covers after every word read: positions ``start <= i < end``, of which 0 is ``<s>``."""

    words: tuple[str, ...]  # with the boundary
    decisions: tuple[int, ...]  # theta
    spans: tuple[tuple[tuple[int, int] | None, ...], ...]  # [position][slot]; None where the slot is empty

    @classmethod
    def of(cls, memory: SlotSpans) -> MemoryGrid:
        """The grid of what a model's memory covers."""
        return cls(words=memory.tokens, decisions=memory.decisions, spans=memory.spans)

    def as_text(self) -> str:
        """A column for each word, a row for each slot, the root on top; below, decisions. Without unused slots."""
        rows = [
            [f"slot {slot}", *(self.covered(column[slot]) or "." for column in self.spans)]
            for slot in self.used_slots()
        ]
        rows += [["theta", *map(str, self.decisions)], ["word", *self.words]]
        widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
        lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
        return "\n".join(line.rstrip() for line in lines) + "\n"

    def used_slots(self) -> list[int]:
        """The root's slot and those below it down to the lowest that is ever used."""
        num_slots = len(self.spans[0])
        lowest = min(slot for slot in range(num_slots) if any(column[slot] for column in self.spans))
        return list(range(num_slots - 1, lowest - 1, -1))

    def covered(self, span: tuple[int, int] | None) -> str:
        """The words that a slot holds, or where they begin and end; nothing for an empty slot."""
        if span is None:
            return ""
        covered = self.words[span[0] : span[1]]
        return " ".join(covered) if len(covered) <= 2 else f"{covered[0]} .. {covered[-1]}"

    def as_svg(self, *, styled: bool = True) -> str:
        """A column for each word, a row for each slot, the root on top; below, words and decisions.

        A slot holds the words that its candidate covers. The slot of the decision is marked, and the one below it,
        where the word was written. Without style (and legend), colours are those that a page sets for the classes in
        ``svg.memory``. The picture needs no outside resources.
        """
        return _GridDrawing(self).draw(styled=styled)

    def _repr_svg_(self) -> str:
        return self.as_svg()


def grid_of_sentence(lm: LanguageModel, words: Sequence[str]) -> MemoryGrid:
    """The grid of a sentence. Raises ``InputError`` if it has no words, and for a system without such a memory."""
    return MemoryGrid.of(of_kind(lm.structure(words), SlotSpans))


class _GridDrawing:
    """The SVG of a grid while it is drawn, column by column."""

    def __init__(self, grid: MemoryGrid) -> None:
        """Find the widths of the columns."""
        self.grid = grid
        self.slots = grid.used_slots()  # the root first
        columns = list(zip(grid.words, grid.spans, strict=True))
        texts = [[word, *(grid.covered(column[slot]) for slot in self.slots)] for word, column in columns]
        self.widths = [max(map(_width, column)) + 20 for column in texts]
        self.left = _MARGIN + max(_width(f"slot {slot}") for slot in self.slots) + 16
        self.parts: list[str] = []

    def draw(self, *, styled: bool) -> str:
        x = self.left
        for position, width in enumerate(self.widths):
            self._column(position, x, width)
            x += width + _GAP
        for row, name in enumerate([*(f"slot {slot}" for slot in self.slots), "word", "theta"]):
            self._text(self.left - 12, self._middle(row), name, "name")
        rows = len(self.slots) + 2
        width = max(x + _MARGIN, _MARGIN + _width(LEGEND) + _MARGIN) if styled else x + _MARGIN
        if styled:
            self._text(width / 2, self._middle(rows), LEGEND, "theta")
        height = self._middle(rows if styled else rows - 1) + _ROW / 2 + _MARGIN
        background = '<rect class="background" width="100%" height="100%"/>'
        parts = [*((f"<style>{_STYLE}</style>", background) if styled else ()), *self.parts]
        title = "memory after each word of: " + " ".join(self.grid.words[1:])
        return svg_file(width, height, title, parts, "memory")

    def _column(self, position: int, x: float, width: float) -> None:
        theta, spans = self.grid.decisions[position], self.grid.spans[position]
        for row, slot in enumerate(self.slots):
            span = spans[slot]
            kind = "empty" if span is None else "split" if slot == theta else "read" if slot == theta - 1 else "cell"
            y = self._middle(row) - _ROW / 2 + 2
            self.parts.append(
                f'<rect class="{kind}" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{_ROW - 4}" rx="4"/>'
            )
            if span is not None:
                self._text(x + width / 2, self._middle(row), self.grid.covered(span), "content")
        self._text(x + width / 2, self._middle(len(self.slots)), self.grid.words[position], "word")
        self._text(x + width / 2, self._middle(len(self.slots) + 1), str(theta), "theta")

    def _middle(self, row: int) -> float:
        return _MARGIN + _ROW * (row + 0.5)

    def _text(self, x: float, y: float, text: str, kind: str) -> None:
        baseline = y + 0.35 * FONT_SIZE
        self.parts.append(f'<text class="{kind}" x="{x:.1f}" y="{baseline:.1f}">{escaped(text)}</text>')


def _width(text: str) -> float:
    """About as wide as the text is drawn, in pixels."""
    return _CHARACTER * sum(1.7 if east_asian_width(character) in "WF" else 1 for character in text)
