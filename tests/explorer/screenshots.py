"""``python -m tests.explorer.screenshots``: makes the pictures of docs/explorer.md, as the tests use the page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.explorer.browser import GARDEN_PATH, RUNS, chromium, explorer, opened, read, wait_until_read

FOLDER = Path(__file__).parents[2] / "docs" / "pictures"
MARGIN = 24


def around(part: Any) -> dict[str, float]:
    """The place of a part of the page, with a margin."""
    box = part.bounding_box()
    return {
        "x": box["x"] - MARGIN,
        "y": box["y"] + 1,
        "width": box["width"] + 2 * MARGIN,
        "height": box["height"] + MARGIN,
    }


def main() -> None:
    """Take a wide picture in light, the beam in dark, and a narrow one."""
    FOLDER.mkdir(exist_ok=True)
    with explorer(RUNS) as address, chromium() as browser:
        page = opened(browser, address, height=1100)
        read(page, GARDEN_PATH)
        page.locator("#words button", has_text="was").click()
        wait_until_read(page, len(GARDEN_PATH.split()))
        page.screenshot(path=FOLDER / "explorer.png")
        page = opened(browser, address, dark=True, height=2400)
        read(page, GARDEN_PATH)
        page.locator("#words button", has_text="city").click()
        wait_until_read(page, len(GARDEN_PATH.split()))
        page.screenshot(path=FOLDER / "explorer-beam.png", full_page=True, clip=around(page.locator("#panel-beam")))
        page = opened(browser, address, width=390, height=844)
        read(page, GARDEN_PATH)
        page.locator("#surprisal").scroll_into_view_if_needed()
        page.screenshot(path=FOLDER / "explorer-narrow.png")


if __name__ == "__main__":
    main()
