"""Attention as a stack is walked: which positions of a derivation each one may see (Fig. 2, Sartran et al. 2022)."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

from treelm.figures.markup import Markup, element, size_of, svg_file
from treelm.figures.report.parts import text_width
from treelm.models.structures import StackSight
from treelm.trees.tree import Tree

_CELL, _FONT, _MARGIN, _LINE = 18, 12, 12, 17
_FAINTEST = 0.05  # opacity of what is seen and not attended to
_STYLE = f"""\
text {{ font: {_FONT}px sans-serif; fill: #1f2933; }}
.row {{ text-anchor: end; }}
.title {{ font-weight: bold; }}
.seen {{ fill: #b9d3ec; stroke: #7b98bd; }}
.part {{ fill: #f9d9c2; stroke: #d55e00; }}
.own {{ fill: #fbeeb5; stroke: #b58a00; }}
.seen[fill-opacity] {{ fill: #2b6cb0; }}
.part[fill-opacity] {{ fill: #d55e00; }}
.own[fill-opacity] {{ fill: #b58a00; }}
.hidden {{ fill: none; stroke: #dcdfe5; }}
.background {{ fill: #ffffff; }}"""
CAPTION = (
    "What each position sees",
    "Row: a position that is read; columns: earlier ones that it may attend to.",
    "Yellow: itself; blue: what is on the stack; empty: hidden.",
)
COMPOSING = "Orange: a closing bracket that composes sees the parts of its constituent alone."
WEIGHTS = "The fuller the colour, the more the last layer attends to it (mean of its heads)."
_SIGNS = {"seen": "#", "part": "+", "own": "o", "hidden": "."}


@dataclass(frozen=True, kw_only=True)
class StackAttention:
    """The positions of a derivation with what each sees and, if it is to be drawn beside, the tree."""

    sight: StackSight
    tree: Tree | None = None

    def kinds(self, row: int) -> list[str]:
        """Of a row, how each position up to itself is drawn: ``seen``, ``part``, ``own`` or ``hidden``."""
        kind = "part" if self.sight.composes[row] else "seen"
        seen = set(self.sight.seen[row])
        return [*(kind if column in seen else "hidden" for column in range(row)), "own"]

    def as_text(self) -> str:
        """A row for each position: ``#`` it sees, ``+`` it composes, ``o`` itself, ``.`` hidden."""
        width = max(map(len, self.sight.tokens))
        lines = (
            f"{token.rjust(width)}  {' '.join(_SIGNS[kind] for kind in self.kinds(row))}"
            for row, token in enumerate(self.sight.tokens)
        )
        return "\n".join(lines) + "\n"

    def as_svg(self, *, styled: bool = True) -> str:
        """The grid, with its caption, and the tree to its right, if there is one.

        Without style there is the grid alone, whose colours are those that a page sets for the classes in
        ``svg.sight``. Nothing outside is needed to show it.
        """
        title = "what each position sees of: " + " ".join(self.sight.tokens)
        edge = _MARGIN + max(text_width(token, _FONT) for token in self.sight.tokens) + 8
        side = edge + _CELL * len(self.sight.tokens) + _MARGIN
        grid = self._grid(edge)
        if not styled:
            return svg_file(side, side, title, grid, "sight")
        return self._explained(grid, side, title)

    def _grid(self, edge: float) -> list[Markup]:
        """Names of columns, upright, and the rows with theirs."""
        parts, drawn = [], bool(self.sight.weights)
        for number, token in enumerate(self.sight.tokens):
            place = f"translate({edge + _CELL * (number + 0.7):.0f} {edge - 6:.0f}) rotate(-90)"
            y = edge + _CELL * number
            parts.append(element("text", token, transform=place))
            parts.append(element("text", token, class_="row", x=edge - 6, y=y + 0.75 * _CELL))
            size: dict[str, float] = {"y": y, "height": _CELL - 2, "rx": 2}
            parts.append(element("rect", class_="hidden", x=edge, width=_CELL * (number + 1) - 2, **size))
            weights = dict(zip(self.sight.seen[number], self.sight.weights[number], strict=True)) if drawn else {}
            for column, kind in enumerate(self.kinds(number)):
                if kind != "hidden":
                    weight = weights.get(column)
                    given = [] if weight is None else [element("title", f"{100 * weight:.0f} %")]
                    opacity = None if weight is None else round(_FAINTEST + (1 - _FAINTEST) * sqrt(weight), 2)
                    own = {**size, "x": edge + _CELL * column, "width": _CELL - 2}
                    parts.append(element("rect", *given, class_=kind, fill_opacity=opacity, **own))
        return parts

    def _explained(self, grid: list[Markup], side: float, title: str) -> str:
        others = {COMPOSING: any(self.sight.composes), WEIGHTS: bool(self.sight.weights)}
        lines = (*CAPTION, *(line for line, is_needed in others.items() if is_needed))
        caption = [
            element("text", line, class_=None if number else "title", x=_MARGIN, y=_MARGIN + _FONT + _LINE * number)
            for number, line in enumerate(lines)
        ]
        top = _MARGIN + _LINE * len(lines)
        width = max(side, _MARGIN + max(text_width(line, _FONT) for line in lines) + _MARGIN)
        height = top + side
        parts = [*caption, element("g", *grid, transform=f"translate(0 {top})")]
        if self.tree is not None:
            drawing = self.tree.to_svg()
            own_width, own_height = size_of(drawing)
            inner = Markup(drawing[drawing.index("<svg") :])
            parts.append(element("g", inner, transform=f"translate({width:.0f} {_MARGIN})"))
            width, height = width + own_width + _MARGIN, max(height, own_height + 2 * _MARGIN)
        background = element("rect", class_="background", width="100%", height="100%")
        return svg_file(width, height, title, [f"<style>{_STYLE}</style>", background, *parts])

    def _repr_svg_(self) -> str:
        return self.as_svg()
