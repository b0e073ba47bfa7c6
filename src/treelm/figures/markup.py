"""HTML and SVG as values: a text is escaped when it becomes part of an element, so that none can be forgotten."""

from __future__ import annotations

import re
from collections.abc import Iterable
from html import escape
from typing import Final

from treelm.trees.tree import xml_characters

_VOID: Final = frozenset({"br", "col", "meta", "input", "link", "rect", "line", "path", "circle", "polyline", "use"})
_LENGTH = re.compile(r'\b(width|height)="([0-9.]+)(?:px)?"')


class Markup(str):
    """Text that is markup already."""

    __slots__ = ()


Content = str | Markup
"""Content of an element: markup as it is, any other text escaped."""


def element(name: str, /, *content: Content, **attributes: str | float | None) -> Markup:
    """An element. In names of attributes ``_`` is a hyphen, a last one is dropped (``class_``); None leaves one out.

    Numbers are written with two decimals at most: coordinates need no more.
    """
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(_attribute_text(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in _VOID and not content:
        return Markup(f"<{name}{given}/>" if name not in ("br", "col", "meta") else f"<{name}{given}>")
    return Markup(f"<{name}{given}>{join(*content)}</{name}>")


def join(*content: Content) -> Markup:
    """Pieces one after the other, texts escaped."""
    return Markup("".join(piece if isinstance(piece, Markup) else escaped(piece) for piece in content))


def svg_file(width: float, height: float, title: str, parts: Iterable[str], class_: str | None = None) -> str:
    """A picture as the content of a file, without outside resources."""
    size = f'width="{width:.0f}" height="{height:.0f}"'
    named = "" if class_ is None else f' class="{class_}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" {size}{named} role="img">'
    return "\n".join([head, f"<title>{escaped(title)}</title>", *parts, "</svg>"]) + "\n"


def size_of(drawing: str) -> tuple[float, float]:
    """Width and height of an SVG, in pixels, as its first tag says."""
    size = dict(_LENGTH.findall(drawing[: drawing.index(">")]))
    return float(size["width"]), float(size["height"])


def escaped(text: str) -> Markup:
    """A text escaped; control characters, which HTML and XML do not allow, are shown as U+FFFD."""
    return Markup(escape(xml_characters(text)))


def _attribute_text(value: str | float) -> str:
    if isinstance(value, str):
        return xml_characters(value)
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)
