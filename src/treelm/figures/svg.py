"""Pictures as SVG: elements, drawings that can be put together, and files in the light colours of the pages."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from unicodedata import east_asian_width

from markupsafe import Markup, escape

from treelm.trees.tree import xml_characters

FONT, MARGIN = 13, 12
NUM_COLOURS = 7
_NARROW, _WIDE = frozenset("iljtfrI.,;:!|'`()[]-"), frozenset("mwMW@%&<>=+~#")
_MARKS = (  # around (0, 0)
    "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0 -8 0z",
    "M-3.6 -3.6h7.2v7.2h-7.2z",
    "M0 -5l5 5l-5 5l-5 -5z",
    "M0 -4.8l4.8 8.4h-9.6z",
    "M0 4.8l4.8 -8.4h-9.6z",
    "M-1.6 -4.6h3.2v3h3v3.2h-3v3h-3.2v-3h-3v-3.2h3z",
)


def element(name: str, /, *content: str, **attributes: str | float | None) -> Markup:
    """An element; its texts are escaped.

    In names of attributes, ``_`` stands for a hyphen, and one at the end is dropped (``class_``). An attribute that is
    None is left out. Floats are written with two decimals at most.
    """
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escaped(value if isinstance(value, str) else _number(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    return Markup(f"<{name}{given}>{join(*content)}</{name}>" if content else f"<{name}{given}/>")


def join(*content: str) -> Markup:
    """Pieces one after the other, texts escaped."""
    return Markup("").join(map(escaped, content))


def escaped(text: str) -> Markup:
    """A text escaped unless it is markup; control characters, which XML does not allow, are shown as U+FFFD."""
    return text if isinstance(text, Markup) else escape(xml_characters(text))


def _number(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)


def text(x: float, y: float, content: str, kind: str | None = None, **attributes: str | float) -> Markup:
    """A text whose baseline begins at a place."""
    return element("text", content, class_=kind, x=x, y=y, **attributes)


def upright(x: float, y: float, content: str, kind: str | None = None) -> Markup:
    """A text that is read from below, beginning at a place."""
    return element("text", content, class_=kind, transform=f"translate({x:.0f} {y:.0f}) rotate(-90)")


def box(
    x: float, y: float, width: float, height: float, kind: str, tip: str = "", **attributes: float | None
) -> Markup:
    """A rectangle, with a text for those who point at it."""
    title = (element("title", tip),) if tip else ()
    return element("rect", *title, class_=kind, x=x, y=y, width=width, height=height, **attributes)


def colour_class(look: int) -> str:
    """The class that sets the colour of the run with this look, and its dashes from the eighth run on."""
    dashed = " dashed" if (look // NUM_COLOURS) % 2 else ""
    return f"s{look % NUM_COLOURS}{dashed}"


def mark(look: int, x: float, y: float, tip: str | None = None) -> Markup:
    """The mark of a run at a place, with a text for those who point at it."""
    title = () if tip is None else (element("title", tip),)
    shape, place = _MARKS[look % len(_MARKS)], f"translate({x:.1f} {y:.1f})"
    return element("path", *title, class_=f"mark {colour_class(look)}", d=shape, transform=place)


def text_width(text: str, font_size: float = FONT) -> float:
    """Estimate the width of a text in a sans-serif font, in pixels."""
    return font_size * sum(map(_ems, text))


def _ems(character: str) -> float:
    if east_asian_width(character) in "WF":
        return 1.0
    if character in _NARROW:
        return 0.34
    return 0.88 if character in _WIDE else 0.7 if character.isupper() else 0.6


@dataclass(frozen=True)
class Drawing:
    """A picture drawn from (0, 0), whose colours follow from its kind: its class, and those of its elements."""

    kind: str
    title: str
    width: float
    height: float
    content: Markup

    def __html__(self) -> str:
        """The picture as a part of a page, in its natural size."""
        size = {"width": round(self.width), "height": round(self.height)}
        frame = f"0 0 {self.width:.0f} {self.height:.0f}"
        title = element("title", self.title)
        return element("svg", title, self.content, class_=self.kind, role="img", viewBox=frame, **size)

    def file(self) -> str:
        """The picture as the content of a file, which needs nothing from outside."""
        return file_of(self.__html__())

    def _repr_svg_(self) -> str:
        return self.file()


def file_of(picture: str) -> str:
    """The content of a file with a picture of a page, which needs nothing from outside."""
    background = element("rect", class_="background", width="100%", height="100%")
    start, end = str(picture).split("</title>", 1)  # markup would escape what it is given
    start = start.replace(">", ' xmlns="http://www.w3.org/2000/svg">', 1)
    return f"{start}</title>{element('style', Markup(file_style()))}{background}{end}\n"


def heading(title: str, kind: str = "title") -> Drawing:
    """A line of text as a drawing."""
    return Drawing("heading", title, text_width(title) * 1.1, FONT + 2, text(0, FONT, title, kind))


def below(title: str, drawings: Sequence[Drawing], gap: float = MARGIN) -> Drawing:
    """Drawings one under the other, with a margin around all."""
    return _placed(title, drawings, gap, lambda one: (0, one.height))


def beside(title: str, drawings: Sequence[Drawing], gap: float = 2 * MARGIN) -> Drawing:
    """Drawings one beside the other."""
    return _placed(title, drawings, gap, lambda one: (one.width, 0))


def _placed(
    title: str, drawings: Sequence[Drawing], gap: float, step: Callable[[Drawing], tuple[float, float]]
) -> Drawing:
    x = y = float(MARGIN)
    right = bottom = 0.0
    parts = []
    for one in drawings:
        parts.append(element("g", one.content, class_=one.kind, transform=f"translate({x:.0f} {y:.0f})"))
        right, bottom = max(right, x + one.width), max(bottom, y + one.height)
        across, down = step(one)
        x, y = x + (across and across + gap), y + (down and down + gap)
    return Drawing("pictures", title, right + MARGIN, bottom + MARGIN, join(*parts))


def style() -> str:
    """The style of pictures in pages, light and dark, whose colours pages use too."""
    return files("treelm.figures").joinpath("svg.css").read_text(encoding="utf-8")


@cache
def file_style() -> str:
    """The style of a file of pictures: their rules in the light colours, since many programs know no variables."""
    whole = style()
    colours = dict(re.findall(r"--([\w-]+): ([^;]+);", whole[: whole.index("@media")]))
    rules = whole[whole.index("/* pictures */") :]
    return re.sub(r"var\(--([\w-]+)\)", lambda found: colours[found[1]], rules)
