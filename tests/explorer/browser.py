"""A real browser before a real server: ``treelm explore`` in a process of its own, and Chromium by playwright."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

import pytest

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)
RUNS = ("lstm-gum-open", "rnng-gum-open", "prpn-open-english", "palm-open-english", "som-open-english")
GARDEN_PATH = "When the people left the city was still small ."


def skips(*libraries: str) -> list[pytest.MarkDecorator]:
    """Marks of tests that need a browser, playwright, axe, and these libraries."""
    needed = (*libraries, "playwright", "axe_playwright_python")
    missing = ", ".join(name for name in needed if find_spec(name) is None)
    return [
        pytest.mark.skipif(CHROMIUM is None, reason="no Chromium or Chrome on this machine"),
        pytest.mark.skipif(bool(missing), reason=f"not installed: {missing}"),
    ]


def violations(page: Any) -> list[str]:
    """What axe finds wrong, by its rules for everybody and its best practices."""
    from axe_playwright_python.sync_playwright import Axe

    found = Axe().run(page).response["violations"]
    return [f"{one['id']}: {node['html']}" for one in found for node in one["nodes"]]


@contextmanager
def explorer(runs: Sequence[str] = RUNS) -> Iterator[str]:
    """The address of a server, which Ctrl-C has to end."""
    command = [sys.executable, "-m", "treelm", "explore", *runs]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        said = ""
        try:
            for line in process.stderr:
                said += line
                if found := re.match("open (http://127.0.0.1:.*)", line):
                    yield found[1]
                    break
            else:
                raise AssertionError(f"no address: {said}")
        finally:
            process.send_signal(signal.SIGINT)
            rest = process.communicate(timeout=60)[1]
    assert process.returncode == 0, rest
    assert "Traceback" not in rest


@contextmanager
def chromium() -> Iterator[Any]:
    """The browser."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Start the browser of a file of tests, which imports this fixture."""
    with chromium() as found:
        yield found


def opened(browser: Any, address: str, *, width: int = 1280, height: int = 1000, dark: bool = False) -> Any:
    """The page in a tab of its own. What its script complains of fails the test."""
    context = browser.new_context(
        viewport={"width": width, "height": height},
        color_scheme="dark" if dark else "light",
        accept_downloads=True,
        reduced_motion="reduce",
    )
    page = context.new_page()
    page.set_default_timeout(60_000)
    page.complaints = []
    page.on("pageerror", lambda error: page.complaints.append(str(error)))
    page.on("console", lambda message: page.complaints.append(message.text) if message.type == "error" else None)
    page.goto(address)
    return page


def wait_until_read(page: Any, num_words: int) -> None:
    """Wait until all models have read this many words."""
    from playwright.sync_api import expect

    page.locator("#surprisal[aria-busy=false]").wait_for()
    expect(page.locator("#status")).to_contain_text(re.compile(f"^Read: {num_words} words? "), timeout=60_000)


def read(page: Any, text: str) -> None:
    """Type a text of which every word is followed by a blank, and wait until it is read."""
    page.locator("#text").fill(text)
    wait_until_read(page, len(text.split()))
