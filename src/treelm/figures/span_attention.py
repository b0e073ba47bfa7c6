"""Attention over the spans of a sentence: a grid, next to the tree that follows and the gold tree."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from treelm.figures.markup import escaped, size_of, svg_file
from treelm.figures.terminal import draw_tree
from treelm.models.base import LanguageModel
from treelm.models.structures import SpanWeights, of_kind
from treelm.trees.tree import Tree

CAPTION = (
    "Attention over spans",
    "Cell: weight, as the row's token is read, of the span from the column's",
    "token up to the one before the row's. Weights of a row sum to 1.",
    "The tree follows from scores, which spans of any length have.",
)
COLUMNS, ROWS = "span begins with", "token that is read"
OUTSIDE = "out of reach (max_span, stop_at_end)"
_SHADES, _NO_SHADE = " .:-=+*#%@", "~"
_CELL, _FONT, _MARGIN = 24, 12, 12
_LINE, _CHARACTER = 17, 0.5 * _FONT  # pixels from line to line, and of an average character
_SCALE = (0.0, 0.25, 0.5, 0.75, 1.0)
_STYLE = f"""\
text {{ font: {_FONT}px sans-serif; fill: #1f2933; }}
.row {{ text-anchor: end; }}
.title {{ font-weight: bold; }}
.note {{ fill: #52606d; }}
.weight {{ fill: #1f5fa8; stroke: #d9dee4; }}
.outside {{ fill: none; stroke: #b8c1cb; stroke-dasharray: 2 4; }}
.back {{ fill: #ffffff; }}"""


@dataclass(frozen=True, kw_only=True)
class SpanAttentionFigure:
    """Weights of the spans that each token looks at when it is read, the derived tree, and the gold tree if known."""

    tokens: tuple[str, ...]  # with the boundary before and after the sentence
    weights: NDArray[np.float64]  # (n, n): row t, column i: of the span from token i to token t - 1; 0 elsewhere
    reach: tuple[int, ...]  # row t: tokens of the longest span that it can attend to
    derived: Tree
    gold: Tree | None = None

    @classmethod
    def of(cls, attention: SpanWeights, derived: Tree, gold: Tree | None = None) -> SpanAttentionFigure:
        """The figure of what a model attends to."""
        weights = np.zeros((len(attention.weights), len(attention.weights)))
        for row, values in enumerate(attention.weights):
            weights[row, :row] = values
        return cls(tokens=attention.tokens, weights=weights, reach=attention.reach, derived=derived, gold=gold)

    def as_text(self) -> str:
        """A row for each token that looks back, a column for each token that a span may begin with, then the trees.

        The darker a cell, the larger the weight of the span from its column up to the row's token, which is not part
        of it.
        """
        width = max(map(len, self.tokens))
        lines = [*CAPTION, f"0 {_SHADES} 1; {_NO_SHADE} {OUTSIDE}", "", " " * width + f"  {COLUMNS}"]
        columns = [token[:3].ljust(3) for token in self.tokens[:-1]]
        lines.append(" " * width + "  " + " ".join(columns).rstrip())
        for row, token in enumerate(self.tokens[1:], 1):
            cells = [_shade(weight) * 3 for weight in self.weights[row, :row]]
            cells[: max(row - self.reach[row], 0)] = [_NO_SHADE * 3] * max(row - self.reach[row], 0)
            lines.append(f"{token.rjust(width)}  {' '.join(cells)}".rstrip())
        parts = ["\n".join(lines), f"derived tree\n{draw_tree(self.derived, None)}"]
        if self.gold is not None:
            parts.append(f"gold tree\n{draw_tree(self.gold, None)}")
        return "\n\n".join(part.rstrip("\n") for part in parts) + "\n"

    def as_svg(self) -> str:
        """The grid with its caption and scale; to its right the derived tree, the gold tree below that one.

        Nothing outside is needed to show it. Raises ``InputError`` for trees that are too tall to draw.
        """
        explained, left, bottom = self._explained_grid()
        trees, width, height = self._trees(left)
        parts = [f"<style>{_STYLE}</style>", '<rect class="back" width="100%" height="100%"/>', *explained, *trees]
        title = "attention over spans of: " + " ".join(self.tokens[1:-1])
        return svg_file(max(left, width), max(bottom, height), title, parts)

    def _explained_grid(self) -> tuple[list[str], float, float]:
        """Caption, grid with the names of its axes, and scale; where they end to the right and below."""
        grid, width, height = span_grid(self.tokens, self.weights, self.reach)
        edge = _grid_edge(self.tokens)
        parts = [
            _text(_MARGIN, _MARGIN + _FONT + _LINE * index, line, "note" if index else "title")
            for index, line in enumerate(CAPTION)
        ]
        top = _MARGIN + _LINE * (len(CAPTION) + 1.5)
        shift = _LINE  # the name of the rows stands upright left of them
        parts.append(_text(shift + edge, top, COLUMNS, "note"))
        begin = top + min(height - _MARGIN, edge + _CHARACTER * len(ROWS))  # beside the first rows
        place = f"translate({_MARGIN + _FONT} {begin:.0f}) rotate(-90)"
        parts.append(f'<text class="note" transform="{place}">{ROWS}</text>')
        parts.append(f'<g transform="translate({shift} {top:.0f})">{grid}</g>')
        has_outside = any(row > reach for row, reach in enumerate(self.reach))
        parts += _scale(shift + _MARGIN, top + height + _MARGIN, has_outside=has_outside)
        widest = _MARGIN + _CHARACTER * max(map(len, CAPTION)) + 2 * _MARGIN
        return parts, max(shift + width, widest), top + height + 2 * _CELL + 2 * _MARGIN

    def _trees(self, x: float) -> tuple[list[str], float, float]:
        """The trees, one above the other; where they end to the right and below."""
        parts: list[str] = []
        width, y = x, float(_MARGIN)
        for name, tree in (("derived tree", self.derived), ("gold tree", self.gold)):
            if tree is None:
                continue
            drawing = tree.to_svg()
            own_width, own_height = size_of(drawing)
            parts.append(_text(x, y + _FONT, name, "title"))
            parts.append(f'<g transform="translate({x} {y + _LINE:.0f})">{drawing[drawing.index("<svg") :]}</g>')
            width = max(width, x + max(own_width, _FONT * len(name)) + _MARGIN)
            y += _LINE + own_height + 2 * _MARGIN
        return parts, width, y

    def _repr_svg_(self) -> str:
        return self.as_svg()


def span_grid(
    tokens: Sequence[str], weights: Sequence[Sequence[float]] | NDArray[np.float64], reach: Sequence[int] | None = None
) -> tuple[str, float, float]:
    """The grid as parts of an SVG, without style, and where it ends to the right and below, in pixels.

    Row t of the weights has those of the spans from token i < t to token t - 1, at i. Longer ones than ``reach[t]``
    are drawn as out of reach.
    """
    count = len(tokens) - 1
    left = top = _grid_edge(tokens)  # column names stand upright
    parts = []
    for index, token in enumerate(tokens[:-1]):
        x = left + _CELL * (index + 0.65)
        parts.append(f'<text transform="translate({x:.0f} {top - 6:.0f}) rotate(-90)">{escaped(token)}</text>')
    for row in range(1, count + 1):
        y = top + _CELL * (row - 1)
        parts.append(f'<text class="row" x="{left - 6:.0f}" y="{y + 17:.0f}">{escaped(tokens[row])}</text>')
        for column in range(row):
            is_outside = reach is not None and row - column > reach[row]
            parts.append(_cell(left + _CELL * column, y, None if is_outside else float(weights[row][column])))
    return "\n".join(parts), left + _CELL * count + 3 * _MARGIN, top + _CELL * count + _MARGIN


def _grid_edge(tokens: Sequence[str]) -> float:
    """Room for the names of rows, and of columns."""
    return _MARGIN + 0.65 * _FONT * max(map(len, tokens)) + 8


def _cell(x: float, y: float, weight: float | None) -> str:
    """A square of the grid; without a weight it is out of reach."""
    place = f'x="{x:.0f}" y="{y:.0f}" width="{_CELL - 2}" height="{_CELL - 2}"'
    if weight is None:
        return f'<rect class="outside" {place}><title>{OUTSIDE}</title></rect>'
    return f'<rect class="weight" {place} fill-opacity="{weight:.3f}"><title>{weight:.3f}</title></rect>'


def _text(x: float, y: float, text: str, kind: str) -> str:
    return f'<text class="{kind}" x="{x:.0f}" y="{y:.0f}">{text}</text>'


def _scale(x: float, y: float, *, has_outside: bool) -> list[str]:
    """Explain the shades: a cell for each of some weights, and one that cannot be attended to."""
    parts = [_text(x, y + 15, "weight 0", "note")]
    begin = x + 8.5 * _CHARACTER
    parts += [_cell(begin + _CELL * index, y, weight) for index, weight in enumerate(_SCALE)]
    parts.append(_text(begin + _CELL * len(_SCALE) + 4, y + 15, "1", "note"))
    if has_outside:
        parts.append(_cell(x, y + _CELL, None))
        parts.append(_text(x + _CELL + 4, y + _CELL + 15, OUTSIDE, "note"))
    return parts


def _shade(weight: float) -> str:
    return _SHADES[min(int(weight * len(_SHADES)), len(_SHADES) - 1)]


def span_attention_of(lm: LanguageModel, words: Sequence[str], gold: Tree | None = None) -> SpanAttentionFigure:
    """The attention over a sentence by itself. Raises ``InputError`` if it has no words, or the system no such one."""
    found = of_kind(lm.structure(words), SpanWeights)
    (derived,) = lm.parse([words])
    return SpanAttentionFigure.of(found, derived, gold)
