"""How a run looks in every figure of a page: the same colour, mark and dashes everywhere; how wide a text is."""

from __future__ import annotations

from unicodedata import east_asian_width

from treelm.figures.markup import Markup, element

NUM_COLOURS = 7
_MARKS = (  # around (0, 0)
    "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0 -8 0z",
    "M-3.6 -3.6h7.2v7.2h-7.2z",
    "M0 -5l5 5l-5 5l-5 -5z",
    "M0 -4.8l4.8 8.4h-9.6z",
    "M0 4.8l4.8 -8.4h-9.6z",
    "M-1.6 -4.6h3.2v3h3v3.2h-3v3h-3.2v-3h-3v-3.2h3z",
)
_NARROW, _WIDE = frozenset("iljtfrI.,;:!|'`()[]-"), frozenset("mwMW@%&<>=+~#")


def colour_class(look: int) -> str:
    """The class that sets the colour of the run with this number, and its dashes from the eighth run on."""
    dashed = " dashed" if (look // NUM_COLOURS) % 2 else ""
    return f"s{look % NUM_COLOURS}{dashed}"


def mark(look: int, x: float, y: float, tip: str | None = None) -> Markup:
    """The mark of a run at a place, with a text for those who point at it."""
    title = () if tip is None else (element("title", tip),)
    place = f"translate({x:.1f} {y:.1f})"
    shape = _MARKS[look % len(_MARKS)]
    return element("path", *title, class_=f"mark {colour_class(look)}", d=shape, transform=place)


def swatch(look: int) -> Markup:
    """A piece of line with the run's mark, for keys and tables."""
    line = element("path", class_=f"curve {colour_class(look)}", d="M0 6H22")
    return element("svg", line, mark(look, 11, 6), class_="swatch", viewBox="0 0 22 12", aria_hidden="true")


def key(names: dict[int, str], class_: str = "key") -> Markup:
    """What run has what look."""
    items = (element("li", swatch(look), " ", name) for look, name in names.items())
    return element("ul", *items, class_=class_)


def text_width(text: str, font_size: float) -> float:
    """About as wide as a text is in a sans-serif font, in pixels."""
    return font_size * sum(map(_ems, text))


def _ems(character: str) -> float:
    if east_asian_width(character) in "WF":
        return 1.0
    if character in _NARROW:
        return 0.34
    return 0.88 if character in _WIDE else 0.7 if character.isupper() else 0.6
