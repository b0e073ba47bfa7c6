"""The page holds what the comparison holds, and nothing from elsewhere."""

from __future__ import annotations

import json
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.figures.report.worlds import HOSTILE, SYSTEMS, WORDS, analysis, full
from treelm.evaluation.comparison.metrics import Comparison, PartialTree
from treelm.figures.report.page import report_page, write_figures, write_report

VOID = {"meta", "br", "link", "img", "input", "hr"}
SECTIONS = ["figures", "training", "syntaxgym", "pairs", "reading", "garden-paths", "sentence-1"]


class Page(HTMLParser):
    """The elements of a page, checked for nesting."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []  # innermost element, text
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append((self._open[-1] if self._open else "", data))

    def sections(self) -> list[str | None]:
        return [attributes["id"] for tag, attributes in self.elements if tag == "section"]

    def text_of(self, tag: str) -> list[str]:
        return [text for name, text in self.texts if name == tag]


@pytest.fixture(scope="module")
def text() -> str:
    return report_page(full())


@pytest.fixture(scope="module")
def page(text: str) -> Page:
    return Page(text)


def test_a_full_comparison_has_every_section_and_each_is_in_the_contents(page: Page) -> None:
    assert page.sections() == SECTIONS
    links = [attributes.get("href") for tag, attributes in page.elements if tag == "a"]
    assert links == [f"#{name}" for name in SECTIONS]


def test_nothing_is_fetched_and_nothing_runs(page: Page, text: str) -> None:
    tags = {tag for tag, _ in page.elements}
    assert not tags & {"script", "link", "img", "iframe", "object", "embed", "image"}
    for _, attributes in page.elements:
        assert not [name for name in attributes if name.startswith("on") or name in ("src", "srcset", "data")]
        assert (attributes.get("href") or "#").startswith("#")
    without_namespaces = text.replace("http://www.w3.org/2000/svg", "")
    assert "//" not in without_namespaces
    assert "@import" not in text
    assert "url(" not in text
    policy = {attributes.get("http-equiv"): attributes.get("content") for _, attributes in page.elements}
    assert policy["Content-Security-Policy"] == "default-src 'none'; style-src 'unsafe-inline'"


def test_words_that_look_like_markup_are_words(page: Page, text: str) -> None:
    assert "<unk>" in page.text_of("text")
    assert HOSTILE in page.text_of("text")
    assert " ".join(WORDS) in page.text_of("blockquote")
    assert "<b>" not in text.replace("&lt;b&gt;", "")


def test_the_table_has_the_figures_of_every_run(page: Page) -> None:
    cells = [*page.text_of("td"), *page.text_of("strong")]
    for row in full().runs:
        bound = "≤ " if row.system == "rnng" else ""
        assert f"{bound}{row.values['perplexity']:.1f}" in cells
        assert f"{row.values['unlabeled_f1, plain']:.1f}" in cells
        assert cells.count(f"{100 * row.values['circuit, Agreement']:.1f}") >= 2, "in the table, and beside its bar"


def test_a_sentence_has_every_picture_that_its_systems_have(page: Page, text: str) -> None:
    count = len(SYSTEMS)
    classes = [attributes.get("class") for tag, attributes in page.elements if tag == "svg"]
    assert [classes.count(name) for name in ("tree", "distances", "attention", "memory")] == [
        count + 1,
        count,
        count,
        count,
    ]
    tips = {attributes.get("title") for tag, attributes in page.elements if tag == "td"}
    assert {"rnng, think: 8.2", "som, <unk>: 6.8*"} <= tips


def test_a_kept_comparison_gives_the_same_page(tmp_path: Path, text: str) -> None:
    full().save(tmp_path / "comparison.json")
    write_report(full(), tmp_path / "report.html")
    assert (tmp_path / "report.html").read_text(encoding="utf-8") == text
    assert report_page(Comparison.load(tmp_path / "comparison.json")) == text
    assert json.loads((tmp_path / "comparison.json").read_text())["runs"][0]["sentences"]


def test_the_best_of_a_column_is_bold_among_rows_that_compare(page: Page) -> None:
    assert page.text_of("strong").count("≤ 90.0") == 1
    first, second, third = (replace(row, sentences=()) for row in full().runs[:3])
    third = replace(third, vocabulary="another", gold_trees="dependencies")
    bold = Page(report_page(Comparison(runs=(first, second, third)))).text_of("strong")
    assert "≤ 90.0" in bold
    assert f"{third.values['perplexity']:.1f}" not in bold, "alone in its group"
    assert not [one for one in Page(report_page(Comparison(runs=(first,)))).text_of("strong") if one != "Take care"]


def test_the_beam_is_drawn_word_by_word() -> None:
    row = full().runs[0]
    steps = (
        (PartialTree(tree="(S (NP Dogs))", share=0.75), PartialTree(tree="(S (VP Dogs))", share=0.125)),
        (PartialTree(tree="(S (NP Dogs) (VP bark))", share=1.0),),
    )
    sentence = replace(analysis(("Dogs", "bark")), gold=None, beam=steps)
    page = Page(report_page(Comparison(runs=(replace(row, sentences=(sentence,)),))))
    titles = [title for title in page.text_of("title") if title.startswith("analysis ")]
    assert titles == [
        "analysis 1 of rnng after Dogs (word 1), 75.0\xa0%",
        "analysis 2 of rnng after Dogs (word 1), 12.5\xa0%",
        "analysis 1 of rnng after bark (word 2), 100.0\xa0%",
    ]
    coming = [attributes for _, attributes in page.elements if attributes.get("class") == "branch coming"]
    assert len(coming) == 2 + 2 + 2, "S and the constituent of the last word"
    assert "all others: 12.5\xa0%" in page.text_of("p")


def test_each_picture_of_a_report_is_a_file(tmp_path: Path) -> None:
    found = write_figures(full(), tmp_path)
    files = {path.stem: ElementTree.parse(path).getroot() for path in tmp_path.iterdir()}
    assert len(files) == found
    assert {"perplexity-on-dev-by-epochs", "perplexity-on-dev-by-epochs-2", "SG-score-against-perplexity"} <= set(files)
    (bars,) = (file for name, file in files.items() if name.startswith("surprisal-of"))
    assert {*SYSTEMS, *WORDS} <= {one.text for one in bars.iter()}
    assert all(one.find("{*}style") is not None for one in files.values())
