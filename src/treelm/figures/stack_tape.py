"""The stack under each word of a sentence, and the tape: on how many constituents of the stack's trees a word lies."""

from __future__ import annotations

from dataclasses import dataclass

from treelm.figures.markup import Markup, element, svg_file
from treelm.figures.report.parts import text_width
from treelm.models.structures import StackTape

_FONT, _ROW, _GAP, _MARGIN = 13, 24, 8, 12
_STYLE = f"""\
text {{ font: {_FONT}px sans-serif; fill: #1f2933; text-anchor: middle; }}
.name {{ text-anchor: end; }}
.word {{ font-weight: bold; }}
.cell {{ fill: #dcecf8; stroke: #5b94be; }}
.read {{ fill: #fbeeb5; stroke: #b58a00; }}
.split {{ fill: #f9d9c2; stroke: #d55e00; stroke-width: 2; }}
.background {{ fill: #ffffff; }}"""
LEGEND = "Columns: after each word. Boxes: constituents on the stack; orange: the one just built. Numbers: the tape."


@dataclass(frozen=True, kw_only=True)
class TapeGrid:
    """A column for each word that was read, in it a row for each word up to it."""

    tape: StackTape

    def as_text(self) -> str:
        """Depths in columns; a line left of them joins the words of a constituent on the stack."""
        rows = [["", *self.tape.tokens]]
        for place, token in enumerate(self.tape.tokens):
            rows.append([token, *(self._cell(place, last) for last in range(len(self.tape.tokens)))])
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
        return "\n".join(line.rstrip() for line in lines) + "\n"

    def _cell(self, place: int, last: int) -> str:
        if place > last:
            return ""
        (start, end) = next(span for span in self.tape.stacks[last] if span[0] <= place < span[1])
        sign = " " if end - start == 1 else "/" if place == start else "\\" if place == end - 1 else "|"
        return f"{sign}{self.tape.depths[last][place]}"

    def as_svg(self, *, styled: bool = True) -> str:
        """Boxes of constituents over the rows of their words, in a column for each word.

        Without style (and legend), colours are those that a page sets for the classes in ``svg.tape``. Nothing outside
        is needed to show it.
        """
        tokens = self.tape.tokens
        left = _MARGIN + max(text_width(token, _FONT) for token in tokens) + 12
        parts, x = list[Markup](), left
        for last, token in enumerate(tokens):
            width = max(text_width(token, _FONT), 22) + 10
            parts += self._column(last, x, width)
            x += width + _GAP
        for row, token in enumerate(tokens, 1):
            parts.append(self._text(left - 10, row, token, "name"))
        height = 2 * _MARGIN + _ROW * (len(tokens) + 1 + styled)
        if styled:
            x = max(x, 2 * _MARGIN + text_width(LEGEND, _FONT))
            parts.append(self._text(x / 2, len(tokens) + 1, LEGEND, None))
            background = element("rect", class_="background", width="100%", height="100%")
            parts = [Markup(f"<style>{_STYLE}</style>"), background, *parts]
        return svg_file(x + _MARGIN, height, "the stack after each word of: " + " ".join(tokens), parts, "tape")

    def _column(self, last: int, x: float, width: float) -> list[Markup]:
        """What the stack holds after a word: its name, boxes, and the depths in them."""
        parts = [self._text(x + width / 2, 0, self.tape.tokens[last], "word")]
        for start, end in self.tape.stacks[last]:
            kind = "cell" if end <= last else "read" if end - start == 1 else "split"
            y, height = _MARGIN + _ROW * (start + 1) + 2, _ROW * (end - start) - 4
            parts.append(element("rect", class_=kind, x=x, y=y, width=width, height=height, rx=4))
        depths = enumerate(self.tape.depths[last], 1)
        return [*parts, *(self._text(x + width / 2, row, str(depth), "depth") for row, depth in depths)]

    @staticmethod
    def _text(x: float, row: int, text: str, kind: str | None) -> Markup:
        return element("text", text, class_=kind, x=x, y=_MARGIN + _ROW * (row + 0.5) + 0.35 * _FONT)

    def _repr_svg_(self) -> str:
        return self.as_svg()
