"""Syntactic distances as bars over words or characters (Fig. 4, Shen et al. 2018), in the terminal and as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from rich.cells import cell_len

from treelm.figures.markup import escaped, svg_file
from treelm.models.base import LanguageModel
from treelm.models.structures import Distances, of_kind

BLOCKS = " ▁▂▃▄▅▆▇█"
FONT_SIZE = 13
_CHARACTER = 0.62 * FONT_SIZE  # width of an average character
_HEIGHT, _GAP, _MARGIN, _AXIS = 120, 10, 14, 30
_WIDEST = 2 * _CHARACTER  # of a bar: a long word has no more weight than a short one
_STYLE = f"""\
text {{ font: {FONT_SIZE}px sans-serif; fill: #1f2933; text-anchor: middle; }}
.tick {{ font-size: 11px; fill: #52606d; text-anchor: end; dominant-baseline: central; }}
.bar {{ fill: #7b98bd; }}
.end {{ fill: #c99a2e; }}
.axis {{ stroke: #9aa5b1; }}
.background {{ fill: #ffffff; }}"""


@dataclass(frozen=True, kw_only=True)
class DistanceBars:
    """A bar for each token: the distance between it and the token before."""

    tokens: tuple[str, ...]
    distances: tuple[float, ...]
    begins_word: tuple[bool, ...]  # such bars are coloured where words have several tokens

    def __post_init__(self) -> None:
        """Check that all three have one value a token."""
        if not len(self.tokens) == len(self.distances) == len(self.begins_word):
            raise ValueError("one distance and one mark a token are needed")

    @classmethod
    def of(cls, distances: Distances) -> DistanceBars:
        """The bars of what a model has found."""
        return cls(tokens=distances.tokens, distances=distances.values, begins_word=distances.begins_word)

    @property
    def scaled(self) -> NDArray[np.float64]:
        """Heights from 0 to 1; the largest distance is 1, a distance of zero is 0."""
        values = np.asarray(self.distances, dtype=np.float64)
        largest = values.max(initial=0.0)
        return values / largest if largest > 0 else np.zeros(len(values))

    def as_text(self, *, height: int = 6) -> str:
        """Bars of block characters, ``height`` lines high, and below them the tokens; above, the largest distance."""
        widths = [max(cell_len(token), 1) for token in self.tokens]
        eighths = np.rint(self.scaled * height * 8).astype(int)
        lines = [f"largest distance {max(self.distances, default=0.0):.3g}"]
        for line in range(height - 1, -1, -1):
            filled = np.clip(eighths - 8 * line, 0, 8)
            cells = [BLOCKS[fill] * width for fill, width in zip(filled, widths, strict=True)]
            lines.append(" ".join(cells).rstrip())
        pairs = zip(self.tokens, widths, strict=True)
        lines.append(" ".join(token + " " * (width - cell_len(token)) for token, width in pairs).rstrip())
        return "\n".join(lines) + "\n"

    def as_svg(self, *, styled: bool = True) -> str:
        """The bars as a picture without outside resources; bars before words are coloured if words have parts.

        Without style, colours are those that a page sets for the classes in ``svg.distances``.
        """
        widths = [max(cell_len(token), 1.5) * _CHARACTER for token in self.tokens]
        left = np.cumsum([_MARGIN + _AXIS, *(width + _GAP for width in widths)])
        width, height = float(left[-1]) - _GAP + _MARGIN, _HEIGHT + FONT_SIZE + 2 * _MARGIN
        base, size = _MARGIN + _HEIGHT, f'width="{width:.0f}" height="{height}"'
        parts = [
            *([f"<style>{_STYLE}</style>", f'<rect class="background" {size}/>'] if styled else []),
            *self._axis(base, width),
            *(
                self._column(i, float(left[i]), size, base, float(scaled))
                for i, (size, scaled) in enumerate(zip(widths, self.scaled, strict=True))
            ),
        ]
        return svg_file(width, height, "distances before: " + " ".join(self.tokens), parts, "distances")

    def _axis(self, base: float, width: float) -> list[str]:
        end = _MARGIN + _AXIS - _GAP / 2
        largest = max(self.distances, default=0.0)
        return [
            f'<line class="axis" x1="{end:.1f}" x2="{width - _MARGIN:.1f}" y1="{base}" y2="{base}"/>',
            f'<text class="tick" x="{end - 4:.1f}" y="{base}">0</text>',
            *([f'<text class="tick" x="{end - 4:.1f}" y="{_MARGIN}">{largest:.2g}</text>'] if largest > 0 else []),
        ]

    def _column(self, index: int, left: float, width: float, base: float, scaled: float) -> str:
        kind = "bar end" if self.begins_word[index] and not all(self.begins_word) else "bar"
        top, middle, bar = base - scaled * _HEIGHT, left + width / 2, min(width, _WIDEST)
        return (
            f'<rect class="{kind}" x="{middle - bar / 2:.1f}" y="{top:.1f}" width="{bar:.1f}" '
            f'height="{base - top:.1f}"><title>{escaped(f"{self.tokens[index]}: {self.distances[index]:.3g}")}</title>'
            "</rect>"
            f'<text x="{middle:.1f}" y="{base + FONT_SIZE + 6}">{escaped(self.tokens[index])}</text>'
        )


def distance_bars(lm: LanguageModel, words: Sequence[str]) -> DistanceBars:
    """The bars of a sentence, one for each token: words, or the characters of words.

    Raises ``InputError`` for a sentence without words and for a system without distances.
    """
    lm.require_trees()
    return DistanceBars.of(of_kind(lm.structure(words), Distances))
