"""Pages by jinja2 templates: texts are escaped, and control characters, which HTML does not allow, shown as U+FFFD."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import jinja2
from markupsafe import Markup

from treelm.evaluation.tables import Bold
from treelm.figures import svg

Looks = Mapping[str, int]
"""The number of the look of every run: its colour, mark and dashes, the same in the whole page."""


class Section(NamedTuple):
    """A part of a page with a heading."""

    identifier: str
    title: str
    content: Markup


class Bars(NamedTuple):
    """Bars under one heading: shares of runs from 0 to 1 with their looks, of other models, and that of chance."""

    title: str
    shares: Sequence[tuple[str, int, float]]
    others: Sequence[float] = ()
    chance: float | None = None


def render(template: str, **values: Any) -> Markup:
    """Fill a template of the package, named by its path."""
    return Markup(_environment().get_template(template).render(values))


def share_text(share: float) -> str:
    """A probability in percent."""
    return f"{100 * share:.1f}\N{NO-BREAK SPACE}%" if share >= 0.0005 else "<\N{NO-BREAK SPACE}0.1\N{NO-BREAK SPACE}%"


def section(identifier: str, title: str, template: str = "", **values: Any) -> Section:
    """A section by the template that is named after it, or another."""
    name = template or identifier.replace("-", "_")
    return Section(identifier, title, render(f"figures/report/{name}.html.j2", **values))


@cache
def _environment() -> jinja2.Environment:
    def shown(value: Any) -> Any:
        return svg.escaped(value) if isinstance(value, str) else value

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("treelm", "."),
        autoescape=True,
        finalize=shown,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.globals |= {"colour_class": svg.colour_class, "mark": svg.mark, "share_text": share_text}
    environment.tests["bold"] = lambda cell: isinstance(cell, Bold)
    return environment
