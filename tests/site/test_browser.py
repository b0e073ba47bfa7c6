"""The site in a real browser: it fits, axe finds nothing, the search finds, and nothing is asked of other hosts."""

import functools
import http.server
import re
import threading
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.explorer.browser import CHROMIUM, chromium, opened

NEEDED = ("mkdocs", "mkdocstrings", "playwright", "axe_playwright_python")
MISSING = [name for name in NEEDED if find_spec(name) is None]
pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium or Chrome on this machine"),
    pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}"),
    pytest.mark.timeout(900),
]
PAGES = (
    "index.html",
    "models/rnng-search.html",
    "tutorials/garden-paths.html",
    "reference/commands/surprisal.html",
    "reference/api/treelm.trees.tree.html",
)


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    """A server of the site on this machine."""
    handler = functools.partial(_Quiet, directory=str(site))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as found:
        yield found


@pytest.mark.parametrize(("width", "dark", "pages"), [(1280, False, PAGES), (390, True, PAGES[:2])])
def test_pages_fit_and_axe_finds_nothing(
    browser: Any, address: str, width: int, dark: bool, pages: Sequence[str]
) -> None:
    from axe_playwright_python.sync_playwright import Axe

    page = opened(browser, address, width=width, dark=dark)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    found = {}
    for name in pages:
        page.goto(address + name)
        violations = Axe().run(page).response["violations"]
        found[name] = [f"{one['id']}: {node['html']}" for one in violations for node in one["nodes"][:3]]
        assert page.evaluate("() => document.documentElement.scrollWidth") == width, name
    assert not {name: said for name, said in found.items() if said}
    assert page.evaluate("() => document.body.getAttribute('data-md-color-scheme')") == ("slate" if dark else "default")
    assert [url for url in asked if not url.startswith((address, "data:", "blob:"))] == []
    page.context.close()


def test_the_search_finds_what_is_asked(browser: Any, address: str) -> None:
    page = opened(browser, address + "index.html")
    page.keyboard.press("/")
    page.keyboard.type("garden paths", delay=20)
    first = page.locator(".md-search-result__link").first
    first.wait_for()
    assert re.search("garden", first.inner_text(), re.IGNORECASE)
    page.context.close()
