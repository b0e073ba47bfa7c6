"""What PaLM attends to in a sentence: a grid of spans, next to the tree that follows and the gold tree."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from treelm.corpora.encoding import encode_words
from treelm.errors import InputError
from treelm.figures.terminal import draw_tree
from treelm.models.palm.network import PaLM
from treelm.trees.tree import Tree
from treelm.trees.xml_text import escaped

BOUNDARY = "<s>"
_SHADES = " .:-=+*#%@"
_CELL, _FONT, _MARGIN = 24, 12, 12
_STYLE = f"""\
text {{ font: {_FONT}px sans-serif; fill: #1f2933; }}
.row {{ text-anchor: end; }}
.weight {{ fill: #1f5fa8; stroke: #d9dee4; }}
.back {{ fill: #ffffff; }}"""
_LENGTH = re.compile(r'\b(width|height)="([0-9.]+)(?:px)?"')


@dataclass(frozen=True, kw_only=True)
class SpanAttentionFigure:
    """Weights of the spans that each symbol looks at when it is read, the derived tree, and the gold tree if known."""

    symbols: tuple[str, ...]  # with the boundary before and after the sentence
    weights: NDArray[np.float64]  # (n, n): row t, column i: of the span from symbol i to symbol t - 1; 0 elsewhere
    derived: Tree
    gold: Tree | None = None

    def as_text(self) -> str:
        """A row for each symbol that looks back, a column for each symbol that a span may begin with, then the trees.

        The darker a cell, the larger the weight of the span from its column up to the row's symbol, which is not part
        of it.
        """
        width = max(map(len, self.symbols))
        lines = [" " * width + "  span begins with"]
        columns = [symbol[:3].ljust(3) for symbol in self.symbols[:-1]]
        lines.append(" " * width + "  " + " ".join(columns).rstrip())
        for row, symbol in enumerate(self.symbols[1:], 1):
            cells = [_shade(weight) * 3 for weight in self.weights[row, :row]]
            lines.append(f"{symbol.rjust(width)}  {' '.join(cells)}".rstrip())
        parts = ["\n".join(lines), f"derived tree\n{draw_tree(self.derived, None)}"]
        if self.gold is not None:
            parts.append(f"gold tree\n{draw_tree(self.gold, None)}")
        return "\n\n".join(part.rstrip("\n") for part in parts) + "\n"

    def as_svg(self) -> str:
        """The grid, the derived tree and the gold tree side by side, without outside resources.

        Raises ``InputError`` for trees that are too tall to draw.
        """
        grid, x, height = span_grid(self.symbols, self.weights)
        parts = [grid]
        for name, tree in (("derived tree", self.derived), ("gold tree", self.gold)):
            if tree is None:
                continue
            drawing = tree.to_svg()
            size = dict(_LENGTH.findall(drawing[: drawing.index(">")]))
            parts.append(f'<text x="{x}" y="{_MARGIN + _FONT}">{name}</text>')
            parts.append(f'<g transform="translate({x} {2 * _MARGIN + _FONT})">{drawing[drawing.index("<svg") :]}</g>')
            x += float(size["width"]) + 2 * _MARGIN
            height = max(height, float(size["height"]) + 3 * _MARGIN + _FONT)
        head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {x:.0f} {height:.0f}" width="{x:.0f}" '
        title = escaped("attention over spans of: " + " ".join(self.symbols[1:-1]))
        body = "\n".join([f"<style>{_STYLE}</style>", '<rect class="back" width="100%" height="100%"/>', *parts])
        return f'{head}height="{height:.0f}" role="img">\n<title>{title}</title>\n{body}\n</svg>\n'

    def _repr_svg_(self) -> str:
        return self.as_svg()


def span_grid(
    symbols: Sequence[str], weights: Sequence[Sequence[float]] | NDArray[np.float64]
) -> tuple[str, float, float]:
    """The grid as parts of an SVG, without style, and where it ends to the right and below, in pixels.

    Row t of the weights has those of the spans from symbol i < t to symbol t - 1, at i.
    """
    count = len(symbols) - 1
    left = _MARGIN + 0.65 * _FONT * max(map(len, symbols)) + 8
    top = left  # column names stand upright
    parts = []
    for index, symbol in enumerate(symbols[:-1]):
        x = left + _CELL * (index + 0.65)
        parts.append(f'<text transform="translate({x:.0f} {top - 6:.0f}) rotate(-90)">{escaped(symbol)}</text>')
    for row in range(1, count + 1):
        y = top + _CELL * (row - 1)
        parts.append(f'<text class="row" x="{left - 6:.0f}" y="{y + 17:.0f}">{escaped(symbols[row])}</text>')
        for column in range(row):
            weight = float(weights[row][column])
            parts.append(
                f'<rect class="weight" x="{left + _CELL * column:.0f}" y="{y:.0f}" width="{_CELL - 2}" '
                f'height="{_CELL - 2}" fill-opacity="{weight:.3f}"><title>{weight:.3f}</title></rect>'
            )
    return "\n".join(parts), left + _CELL * count + 3 * _MARGIN, top + _CELL * count + _MARGIN


def _shade(weight: float) -> str:
    return _SHADES[min(int(weight * len(_SHADES)), len(_SHADES) - 1)]


@torch.no_grad()
def span_attention_of(palm: PaLM, words: Sequence[str], gold: Tree | None = None) -> SpanAttentionFigure:
    """The attention over a sentence by itself, read from the zero state. Raises ``InputError`` if it has no words."""
    if not words:
        raise InputError("a sentence without words", remedy="give one with words")
    exact = palm.exact()
    tokens = encode_words([words], palm.vocabulary).tokens
    inputs = torch.tensor([palm.end, *tokens.tolist(), palm.end], device=palm.embedding.device)[:, None]
    found = exact.read(inputs, exact.begin(1)).structure["span_weights"][:, 0].cpu().numpy()
    weights = np.zeros((len(inputs), len(inputs)))
    for step in range(1, len(inputs)):
        length = min(step, found.shape[1])
        weights[step, step - length : step] = found[step, :length][::-1]
    same = len(tokens) == len(words)
    names = words if same else [palm.vocabulary.symbol(token) for token in tokens.tolist()]
    (derived,) = palm.parse([words])
    return SpanAttentionFigure(symbols=(BOUNDARY, *names, BOUNDARY), weights=weights, derived=derived, gold=gold)
