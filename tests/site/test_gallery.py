"""The gallery shows what its script draws."""

import re
import runpy

from tests.shipped import need
from tests.site.conftest import ROOT

PICTURES = ROOT / "docs" / "pictures" / "gallery"


def _words(svg: str) -> list[str]:
    return re.findall(r">([^<>]+)</text>", svg)


def test_each_picture_is_on_the_page_and_drawn_by_the_script() -> None:
    drawn = runpy.run_path(str(ROOT / "scripts" / "gallery.py"))["PICTURES"]
    page = (ROOT / "docs" / "gallery.md").read_text(encoding="utf-8")
    assert {path.stem for path in PICTURES.iterdir()} == set(drawn)
    assert set(re.findall(r"\(pictures/gallery/([\w-]+)\.svg\)", page)) == set(drawn)


def test_the_script_draws_what_is_there() -> None:
    need("chart-gum-open", "prpn-open-english", "rnng-gum-open")
    drawn = runpy.run_path(str(ROOT / "scripts" / "gallery.py"))["PICTURES"]
    for name in ("tree", "distances", "search", "levels"):
        assert _words(drawn[name]()) == _words((PICTURES / f"{name}.svg").read_text(encoding="utf-8"))
