"""Texts become markup only by being escaped."""

from __future__ import annotations

from html.parser import HTMLParser

from hypothesis import given
from hypothesis import strategies as st

from treelm.figures.svg import element


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
