"""A person types, watches, clicks and saves, with a mouse or without, on a wide screen or a telephone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from tests.explorer.browser import (
    GARDEN_PATH,
    RUNS,
    browser,
    explorer,
    opened,
    read,
    skips,
    violations,
    wait_until_read,
)
from tests.shipped import need

__all__ = ["browser"]
pytestmark = skips("starlette", "uvicorn")
NUM_WORDS = len(GARDEN_PATH.split())


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    need(*RUNS)
    with explorer() as found:
        yield found


@pytest.fixture
def page(browser: Any, address: str) -> Iterator[Any]:
    found = opened(browser, address)
    yield found
    assert found.complaints == []
    found.context.close()


def row(page: Any, name: str) -> Any:
    return page.locator("#bars tbody tr").filter(has=page.get_by_role("rowheader", name=name))


def bits(page: Any, name: str) -> list[str]:
    found: list[str] = row(page, name).locator("td").all_inner_texts()
    return found


def after(page: Any) -> set[str]:
    return {text.strip() for text in page.locator("section:not([hidden]) h2 .after").all_inner_texts()}


def width_of(page: Any) -> int:
    found: int = page.evaluate("() => document.documentElement.scrollWidth")
    return found


def test_answers_come_while_one_types(page: Any) -> None:
    from playwright.sync_api import expect

    page.locator("#text").press_sequentially("When ")
    wait_until_read(page, 1)
    page.locator("#text").press_sequentially("the dog")
    words = page.locator("#words button")
    expect(words).to_have_text(["When", "the", "dog"])
    wait_until_read(page, 3)
    assert [len(bits(page, name)) for name in ("lstm", "rnng")] == [3, 3]
    assert all(bits(page, "rnng"))
    page.locator("#text").press("Backspace")
    page.locator("#text").press("Backspace")
    expect(words).to_have_text(["When", "the", "d"])


def test_a_click_goes_back_to_the_moment_after_a_word(page: Any) -> None:
    read(page, GARDEN_PATH)
    assert after(page) == {f"after “{GARDEN_PATH}”"}
    assert page.locator("#panel-beam .card").count() == 1
    whole = page.locator("#panel-beam").inner_text()
    surprisals = bits(page, "rnng")
    page.get_by_role("button", name="city", exact=True).click()
    wait_until_read(page, NUM_WORDS)
    assert after(page) == {"after “When the people left the city”"}
    assert page.locator("#panel-beam").inner_text() != whole
    assert page.locator("#panel-beam .coming").count() > 5
    assert page.locator("#panel-distances svg.distances").first.text_content().rstrip().endswith("city")
    assert bits(page, "rnng") == surprisals
    assert page.locator("#panel-trees .card").count() == len(RUNS) - 1


def test_sentences_of_a_text_can_be_chosen_and_long_ones_are_refused(page: Any) -> None:
    page.locator("#text").fill("The dog barks . A cat sleeps .")
    wait_until_read(page, 8)
    assert page.locator("#words button").all_inner_texts() == ["A", "cat", "sleeps", "."]
    page.get_by_role("button", name="The dog barks .", exact=True).first.click()
    wait_until_read(page, 8)
    page.locator("#sentences button").first.click()
    assert page.locator("#words button").all_inner_texts() == ["The", "dog", "barks", "."]
    page.locator("#text").fill("word " * 61)
    page.get_by_text("sentence 1 has 61 words").wait_for()
    assert page.complaints.pop().startswith("Failed to load resource"), "the browser notes the refusal"


def test_by_keys_alone(page: Any) -> None:
    page.keyboard.press("Tab")
    page.keyboard.type(GARDEN_PATH)
    wait_until_read(page, NUM_WORDS)
    for _ in range(40):
        if page.evaluate("() => document.activeElement.closest('#words') !== null"):
            break
        page.keyboard.press("Tab")
    for key, expected in {"ArrowLeft": "small", "Home": "When", "ArrowRight": "the", "End": "."}.items():
        page.keyboard.press(key)
        assert page.evaluate("() => document.activeElement.textContent") == expected
    page.keyboard.press("Home")
    wait_until_read(page, NUM_WORDS)
    assert after(page) == {"after “When”"}


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (390, True)])
def test_it_fits_and_axe_finds_nothing(browser: Any, address: str, width: int, dark: bool) -> None:
    page = opened(browser, address, width=width, dark=dark)
    assert violations(page) == [], "before anything is typed"
    read(page, GARDEN_PATH)
    assert violations(page) == []
    assert width_of(page) == width
    assert page.evaluate("() => getComputedStyle(document.body).backgroundColor") == (
        "rgb(20, 23, 28)" if dark else "rgb(251, 250, 247)"
    )
    cut = page.evaluate("""() => [...document.querySelectorAll("svg[role=img], table.bars")].filter(
      (one) => !one.closest("[tabindex='0']") && one.getBoundingClientRect().right > innerWidth).length""")
    assert cut == 0
    box = page.get_by_role("button", name=".", exact=True).bounding_box()
    assert 0 <= box["x"] <= box["x"] + box["width"] <= width, "the last word is in view"
    page.set_viewport_size({"width": 390 if width > 390 else 1280, "height": 800})
    assert width_of(page) in (390, 1280)
    assert page.complaints == []
    page.context.close()


def test_a_link_brings_the_view_back(page: Any, browser: Any, address: str) -> None:
    read(page, GARDEN_PATH)
    page.get_by_role("checkbox", name="palm").uncheck()
    page.get_by_role("button", name="city", exact=True).click()
    wait_until_read(page, NUM_WORDS)
    other = opened(browser, page.url)
    wait_until_read(other, NUM_WORDS)
    for look in (after, lambda one: bits(one, "rnng"), lambda one: one.locator("#panel-beam").inner_text()):
        assert look(other) == look(page)
    assert not other.get_by_role("checkbox", name="palm").is_checked()
    assert other.get_by_role("checkbox", name="rnng").is_checked()
    other.goto(f"{address}#text=The+dog&model=lstm-gum-open&model=mine&at=0.0")
    wait_until_read(other, 2)
    assert other.locator("#status").inner_text() == "Read: 2 words by 1 model. Not here: mine."
    assert after(other) == {"after “The”"}
    other.context.close()


def test_all_drawings_are_saved_as_one_picture(page: Any, tmp_path: Path) -> None:
    read(page, GARDEN_PATH)
    with page.expect_download() as found:
        page.get_by_role("button", name="Save SVG").click()
    found.value.save_as(tmp_path / "saved.svg")
    picture = ElementTree.parse(tmp_path / "saved.svg").getroot()
    assert len(picture.findall("{*}svg")) == page.locator("[data-panel] svg[width]").count() > len(RUNS)
    assert any((one.text or "").startswith("analysis 1 of rnng") for one in picture.findall("{*}text"))


def test_nothing_comes_from_elsewhere(browser: Any, address: str) -> None:
    page = opened(browser, address)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.reload()
    read(page, "The dog .")
    assert all(url.startswith((address, "data:")) for url in asked)
    assert page.goto(address.rstrip("/") + "x/").status == 404
    page.context.close()


def test_on_a_telephone_the_page_has_two_screens_and_one_part_is_open(browser: Any, address: str) -> None:
    page = opened(browser, address, width=390, height=844)
    read(page, GARDEN_PATH)
    assert page.evaluate("() => document.documentElement.scrollHeight") <= 2 * 844
    first = page.locator("#panel-next .card").first
    assert first.get_attribute("data-run") == "0"
    assert first.bounding_box()["x"] >= 0, "the first model is in view, whichever answered first"
    shown = page.locator("section:not([hidden]) > details")
    assert shown.count() > 4
    assert shown.locator("visible=true").locator("css=[data-panel]:visible").count() == 1
    page.locator("#panel-trees summary").focus()
    page.keyboard.press("Enter")
    assert [one.get_attribute("id") for one in page.locator("section:has(> details[open])").all()] == ["panel-trees"]
    assert violations(page) == []
    page.set_viewport_size({"width": 1280, "height": 800})
    assert page.locator("section:not([hidden]) > details[open]").count() == shown.count(), "there is room for all"
    assert page.complaints == []
    page.context.close()


def test_each_model_says_which_it_is_and_what_must_be_known_of_it(page: Any) -> None:
    read(page, "The horticulturalist ")
    for name, note in (("lstm-gum-open", "no trees"), ("rnng-gum-open", "upper bounds"), ("prpn-open-english", "")):
        assert row(page, name).locator("th").inner_text().split("\n")[1:] == [note] * bool(note)
    trees = page.locator("#panel-trees h3").all_inner_texts()
    assert [("without labels" in one) for one in trees] == [False, True, True, True]
    tokens = page.locator("#panel-next tbody th").all_inner_texts()
    shown = " ".join([*tokens, *page.locator("svg text").all_text_contents()])
    assert "…" in shown
    assert not {sign for sign in ("▁", "UNK", "</w>") if sign in shown}
