"""Texts become markup only by being escaped."""

from __future__ import annotations

from html.parser import HTMLParser
from xml.etree import ElementTree

from hypothesis import given
from hypothesis import strategies as st
from markupsafe import Markup

from treelm.figures.svg import Drawing, below, beside, element, heading


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


def test_elements_escape_texts_but_no_markup_and_shorten_numbers() -> None:
    assert element("p", element("b", "a & b"), "<") == "<p><b>a &amp; b</b>&lt;</p>"
    assert element("p", "a\x00b\x1b", title="\x07") == '<p title="\N{REPLACEMENT CHARACTER}">a\ufffdb\ufffd</p>'
    assert element("text", "a", class_="b", text_anchor="end", x=1.0, y=0.126, id=None) == (
        '<text class="b" text-anchor="end" x="1" y="0.13">a</text>'
    )


def test_drawings_are_put_together_without_covering_each_other() -> None:
    one = Drawing("plot", "one", 100, 50, Markup("<g/>"))
    for title, put, size in (("below", below, (124, 124 + 12)), ("beside", beside, (224 + 24, 74))):
        both = put(title, [one, one])
        assert (both.width, both.height) == size
        root = ElementTree.fromstring(both.file())
        assert root.findtext("{http://www.w3.org/2000/svg}title") == title
    assert heading("a title").width > 0
