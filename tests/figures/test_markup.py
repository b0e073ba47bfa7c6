"""Texts become markup only by being escaped."""

from __future__ import annotations

from html.parser import HTMLParser

from hypothesis import given
from hypothesis import strategies as st

from treelm.figures.markup import Markup, element, join


class Reader(HTMLParser):
    """What a browser reads: texts and attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.attributes: list[str | None] = []

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes += [value for _, value in attrs]


@given(st.text(st.characters(exclude_categories=["Cs", "Cc"])))
def test_any_text_is_read_back_from_content_and_attribute(text: str) -> None:
    reader = Reader()
    reader.feed(element("p", text, title=text))
    reader.close()
    assert "".join(reader.texts) == text
    assert reader.attributes == [text]


def test_markup_is_not_escaped_again() -> None:
    assert element("p", element("b", "a & b"), "<") == "<p><b>a &amp; b</b>&lt;</p>"
    assert isinstance(join("a", Markup("<br>")), Markup)


def test_control_characters_which_html_forbids_are_replaced() -> None:
    assert element("p", "a\x00b\x1b", title="\x07") == '<p title="\N{REPLACEMENT CHARACTER}">a\ufffdb\ufffd</p>'


def test_attributes_lose_what_python_needs_in_names_and_none_is_left_out() -> None:
    assert element("text", "a", class_="b", text_anchor="end", x=1.0, y=0.126, id=None) == (
        '<text class="b" text-anchor="end" x="1" y="0.13">a</text>'
    )
