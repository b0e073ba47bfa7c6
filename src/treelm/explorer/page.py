"""The page: its frame, which the script fills as answers come."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib.resources import files

import treelm
from treelm.explorer.panels import PANELS
from treelm.explorer.reading import Reader
from treelm.explorer.text import Limits
from treelm.figures import svg
from treelm.figures.report.templates import render
from treelm.models.capabilities import Searching

EXAMPLES = (
    "When the people left the city was still small .",
    "When the war ended the city was still small .",
    "The dog that the cats chase barks .",
)


def page(readers: Sequence[Reader], limits: Limits) -> str:
    """The page as text."""
    shown = [{"name": reader.name, "searches": isinstance(reader.lm, Searching)} for reader in readers]
    values = {"readers": shown, "limits": limits, "panels": PANELS, "examples": EXAMPLES}
    return str(render("explorer/page.html.j2", version=treelm.__version__, **values))


@cache
def style() -> str:
    """The report's style, by which drawings look the same here, and the page's own."""
    return svg.style() + _read("treelm.figures.report", "style.css") + _read("treelm.explorer", "explorer.css")


@cache
def script() -> str:
    """The script of the page."""
    return _read("treelm.explorer", "explorer.js")


def _read(package: str, name: str) -> str:
    return files(package).joinpath(name).read_text(encoding="utf-8")
