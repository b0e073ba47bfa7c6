"""A browser shows the page: no part of it is wider than the window, at both widths and in both colour schemes."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.figures.report.worlds import SYSTEMS, full
from treelm.figures.report.page import report_page

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)
OPTIONS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
)
MEASURE = """<script>
const box = element => element.getBoundingClientRect();
const figures = [...document.querySelectorAll("svg[role=img]")].filter(one => box(one).width > 0);
document.documentElement.dataset.measured = JSON.stringify({
  page: document.documentElement.scrollWidth,
  window: document.documentElement.clientWidth,
  figures: figures.length,
  smallest: Math.min(...figures.map(one => box(one).height)),
  scrolled: [...document.querySelectorAll(".scrolled")].every(one => box(one).right <= innerWidth + 1),
  charts: [...document.querySelectorAll(".plot")]
    .filter(one => box(one).width > 0).map(one => box(one).width / one.viewBox.baseVal.width),
  colour: getComputedStyle(document.body).backgroundColor,
});
</script>"""

pytestmark = pytest.mark.skipif(BROWSER is None, reason="no Chromium or Chrome on this machine")


def browse(page: str, folder: Path, width: int, *options: str) -> str:
    """What the browser's command line prints of a page in a window of this width."""
    file = folder / "page.html"
    file.write_text(page, encoding="utf-8")
    command = [str(BROWSER), *OPTIONS, f"--user-data-dir={folder / 'profile'}", f"--window-size={width},2000"]
    done = subprocess.run(
        [*command, *options, file.resolve().as_uri()], check=True, capture_output=True, text=True, timeout=250
    )
    return done.stdout


def framed(page: str, width: int) -> str:
    """The page in a frame of this width, as headless windows may have a least width; scripts are let in to measure."""
    inner = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", page).replace(
        "</body>", f"{MEASURE}</body>"
    )
    quoted = inner.replace("&", "&amp;").replace('"', "&quot;")
    report = (
        "<script>onload = () => { document.body.dataset.measured = "
        "document.querySelector('iframe').contentDocument.documentElement.dataset.measured; };</script>"
    )
    frame = f'<iframe style="width:{width}px;height:1500px;border:0" srcdoc="{quoted}"></iframe>'
    return f"<!DOCTYPE html><body>{frame}{report}"


def measured(folder: Path, width: int, *options: str) -> dict[str, object]:
    dom = browse(framed(report_page(full()), width), folder, 1400, "--dump-dom", *options)
    found = re.search(r'<body data-measured="([^"]*)"', dom)
    assert found is not None
    values: dict[str, object] = json.loads(found[1].replace("&quot;", '"'))
    return values


LIGHT, DARK = (), ("--blink-settings=preferredColorScheme=0",)


@pytest.mark.parametrize(
    ("width", "options", "colour"), [(1280, LIGHT, "rgb(251, 250, 247)"), (420, DARK, "rgb(20, 23, 28)")]
)
def test_nothing_is_wider_than_the_window_and_all_figures_are_seen(
    tmp_path: Path, width: int, options: tuple[str, ...], colour: str
) -> None:
    found = measured(tmp_path, width, *options)
    assert found["colour"] == colour
    assert found["window"] == width
    assert found["page"] == width
    assert found["scrolled"] is True
    count = len(SYSTEMS)
    assert found["figures"] == 4 + 3 + (count + 1) + 3 * count, (
        "curves, those of joint models, scatters, trees, and what is special"
    )
    smallest, charts = found["smallest"], found["charts"]
    assert isinstance(smallest, (int, float))
    assert smallest > 50
    assert isinstance(charts, list)
    assert min(charts) > 0.95, "letters keep their size"
