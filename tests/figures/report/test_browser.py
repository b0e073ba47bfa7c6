"""The page is for everybody: axe finds nothing in it, folded or not, and nothing is wider than any screen."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.explorer.browser import browser, skips, violations
from tests.figures.report.worlds import analysis, full
from treelm.evaluation.comparison.metrics import Comparison, PartialTree
from treelm.figures.report.page import report_page

__all__ = ["browser"]
pytestmark = skips()


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A page with two sentences, a beam and a foot."""
    beam = ((PartialTree(tree="(S (NP Dogs))", share=0.75),), (PartialTree(tree="(S (NP Dogs) (VP bark))", share=1.0),))
    rows = [
        replace(row, sentences=(*row.sentences, replace(analysis(("Dogs", "bark")), gold=None, beam=beam)))
        for row in full().runs[:3]
    ]
    page = report_page(Comparison(runs=tuple(rows), made={"date": "1 May 2026", "command": "treelm compare"}))
    path = tmp_path_factory.mktemp("report") / "report.html"
    path.write_text(page, encoding="utf-8")
    return path.as_uri()


@pytest.mark.parametrize(
    ("width", "scheme", "colour"), [(1280, "light", "rgb(251, 250, 247)"), (390, "dark", "rgb(20, 23, 28)")]
)
def test_axe_finds_nothing_and_all_fits_the_window(
    browser: Any, address: str, width: int, scheme: str, colour: str
) -> None:
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    page.goto(address)
    assert violations(page) == []
    assert page.locator("details").evaluate_all("all => all.map((one) => { one.open = true; }).length") > 3
    assert violations(page) == []
    assert page.evaluate("() => document.documentElement.scrollWidth") == width
    assert page.evaluate("() => getComputedStyle(document.body).backgroundColor") == colour
    boxes = page.locator(".scrolled").evaluate_all("all => all.map((one) => one.getBoundingClientRect().right)")
    assert max(boxes) <= width + 1
    pictures = page.locator("svg[role=img]").evaluate_all("all => all.map((one) => one.getBoundingClientRect().height)")
    assert min(height for height in pictures if height) > 45
    scales = page.locator(".plot").evaluate_all(
        "all => all.map((one) => one.getBoundingClientRect().width / one.viewBox.baseVal.width)"
    )
    assert min(scale for scale in scales if scale) > 0.95, "letters keep their size"
    page.close()
