"""The page: its frame, which the script fills as answers come."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib.resources import files

import treelm
from treelm.explorer.panels import PANELS, Panel
from treelm.explorer.reading import Reader
from treelm.explorer.text import Limits
from treelm.figures.markup import Markup, element, join
from treelm.figures.report.parts import colour_class, run_name
from treelm.models.capabilities import Searching

EXAMPLES = (
    "When the people left the city was still small .",
    "When the war ended the city was still small .",
    "The dog that the cats chase barks .",
)
_SHORTCUTS = "Arrow keys move from word to word; Home and End go to the first and the last."


def page(readers: Sequence[Reader], limits: Limits) -> str:
    """The page as text."""
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("title", "treelm explorer"),
        Markup('<link rel="stylesheet" href="explorer.css"><link rel="icon" href="data:,">'),
        element("script", src="explorer.js", defer=""),
    )
    body = element(
        "body",
        element("header", element("h1", "Read along"), element("p", "Type a sentence and watch models read it.")),
        element("main", _form(readers, limits), _reading(readers), *map(_panel, PANELS)),
        element("footer", element("p", f"treelm {treelm.__version__}, on this machine. Nothing leaves it.")),
        data_max_words=limits.max_words,
    )
    return f"<!DOCTYPE html>\n{element('html', head, body, lang='en')}\n"


@cache
def style() -> str:
    """The report's style, by which drawings look the same here, and the page's own."""
    own = files("treelm.explorer").joinpath("explorer.css").read_text(encoding="utf-8")
    return files("treelm.figures.report").joinpath("style.css").read_text(encoding="utf-8") + own


@cache
def script() -> str:
    """The script of the page."""
    return files("treelm.explorer").joinpath("explorer.js").read_text(encoding="utf-8")


def _form(readers: Sequence[Reader], limits: Limits) -> Markup:
    text = element(
        "textarea",
        id="text",
        rows=2,
        maxlength=12 * limits.max_words_of_text,
        spellcheck="false",
        autocomplete="off",
        autocapitalize="off",
        aria_describedby="hint",
    )
    lines = (
        "Sentences end where the text says so, and with the line" if limits.split_sentences else "One sentence a line"
    )
    hint = f"{lines}; at most {limits.max_words} words each. Punctuation and clitics are words of their own."
    examples = (element("button", one, type="button", class_="example") for one in EXAMPLES)
    boxes = (_box(reader, number) for number, reader in enumerate(readers))
    return element(
        "form",
        element("label", "Text", for_="text"),
        text,
        element("p", hint, id="hint", class_="hint"),
        element("p", "Try: ", *examples, class_="examples"),
        element("fieldset", element("legend", "Models"), *boxes, class_="models"),
        id="form",
    )


def _box(reader: Reader, number: int) -> Markup:
    box = element("input", type="checkbox", checked="", value=number, data_name=reader.name)
    return element("label", box, " ", run_name(reader.name, number))


def _reading(readers: Sequence[Reader]) -> Markup:
    """The surprisals, whose columns are the words that can be chosen."""
    rows = (_row(reader, number) for number, reader in enumerate(readers))
    table = element(
        "table",
        element("caption", "Surprisal in bits of every word given the words before it", class_="unseen"),
        element("thead", element("tr", element("td"), id="words")),
        element("tbody", *rows),
        id="bars",
        class_="words",
        hidden="",
    )
    saves = (
        element("button", text, type="button", disabled="", data_save=kind)
        for kind, text in (("table", "Table"), ("svg", "SVG"), ("png", "PNG"))
    )
    caption = (
        f"Bits of every word given the words before it; * marks a word that a model does not know and predicts as its "
        f"class. Choose a word to go back to the moment after it. {_SHORTCUTS}"
    )
    return element(
        "section",
        element(
            "div",
            element("h2", "Surprisal"),
            element("p", "Save ", *saves, class_="saves"),
            class_="heading",
        ),
        element("p", "Nothing has been typed yet.", id="status", role="status"),
        element("nav", element("ol", id="sentences"), aria_label="Sentences", hidden="", id="choice"),
        element("div", table, class_="scrolled", tabindex="0", role="group", aria_label="surprisal over words"),
        element("p", caption, class_="caption"),
        id="surprisal",
        aria_busy="false",
    )


def _row(reader: Reader, number: int) -> Markup:
    """A model's name, and room for its bars."""
    bounds = element("small", "upper bounds", title="its search finds a part of the probability")
    name = join(run_name(reader.name, number), bounds if isinstance(reader.lm, Searching) else "")
    head = element("th", element("div", name, class_="name"), scope="row")
    return element("tr", head, class_=colour_class(number), data_run=number)


def _panel(panel: Panel) -> Markup:
    return element(
        "section",
        element("h2", panel.title, join(" ", element("span", class_="after"))),
        panel.key,
        element("div", class_=panel.layout, data_panel=panel.identifier),
        element("p", panel.caption, class_="caption"),
        id=f"panel-{panel.identifier}",
        hidden="",
    )
