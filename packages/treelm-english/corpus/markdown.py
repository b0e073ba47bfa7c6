"""Prose of posts and pages in Markdown: no headings, code, tables, captions or list items that are no sentences."""

from __future__ import annotations

import re
from collections.abc import Iterator

from lines import one_line
from lxml import html

_FEWEST_WORDS = 80
_COMMON = re.compile("the|of|to|and|a|in|is|that|for|it|on|with|as|are|this|be|by|we|you|was|at|or|from|can|our")
_REMOVED = (
    (r"\A---\s*\n.*?\n---\s*\n", re.DOTALL, ""),  # its front matter
    (r"^(```|~~~).*?^\1.*?$", re.DOTALL | re.MULTILINE, ""),
    (r"\{%-?\s*(?:raw|highlight).*?%\}.*?\{%.*?%\}", re.DOTALL, ""),
    (
        r"<(style|script|figure|table|pre|code|iframe|svg|blockquote)\b.*?</\1>",
        re.DOTALL | re.IGNORECASE,
        "\n\n",
    ),
    (r"<!--.*?-->", re.DOTALL, ""),
    (r"\{\{.*?\}\}|\{%.*?%\}|\{:.*?\}", re.DOTALL, ""),
    (r"\[\^[^\]]*\]:?", 0, ""),  # footnotes
    (r"!\[[^\]]*\]\([^)]*\)", 0, ""),  # pictures
    (r"\[([^\[\]]*)\]\((?:[^()]|\([^()]*\))*\)", 0, r"\1"),  # links, also one within another
    (r"\[([^\[\]]*)\]\((?:[^()]|\([^()]*\))*\)", 0, r"\1"),
    (r"\[([^\[\]]*)\]\[[^\]]*\]", 0, r"\1"),
    (r"</?(?:p|div|li|ul|ol|h\d|br)\b[^>]*>", re.IGNORECASE, "\n\n"),
    (r"<[^>\n]{1,300}>", 0, ""),
    (r"^[ \t]*(?:[-*+•]|\d+[.)])[ \t]+", re.MULTILINE, "\n\n\x01"),  # items of lists are marked
)
_NO_PROSE = re.compile(r"#|\||>|=+$|-+$|\[|import |:::")
_ADDRESS = re.compile(r"https?://|www\.|\S+@\S+|\.gov/|[{}<>|\\]")


def markdown_document(name: str, content: bytes) -> dict[str, str] | None:
    """Read a page; None for one that is damaged or has less than 80 words of prose."""
    text = content.decode("utf-8", "replace")
    if "\ufffd" in text:
        return None
    title = re.search(r"^title:\s*[\"']?(.*?)[\"']?\s*$", text, flags=re.MULTILINE)
    date = re.search(r"^date:\s*[\"']?(\d{4})", text, flags=re.MULTILINE) or re.search(r"(20[012]\d)-\d\d", name)
    paragraphs = list(paragraphs_of(text))
    if sum(len(paragraph.split()) for paragraph in paragraphs) < _FEWEST_WORDS:
        return None
    return {
        "work": name,
        "title": title[1] if title else "",
        "author": "",
        "date": date[1] if date else "",
        "licence": "US government work, CC0",
        "text": "\n\n".join(paragraphs),
    }


def paragraphs_of(text: str) -> Iterator[str]:
    """Give the prose of a page, a paragraph at a time."""
    for pattern, flags, instead in _REMOVED:
        text = re.sub(pattern, instead, text, flags=flags)
    for block in re.split(r"\n\s*\n", text):
        block = block.strip()
        is_item = block.startswith("\x01")
        block = block.lstrip("\x01").strip()
        if not block or _NO_PROSE.match(block):
            continue
        line = one_line(re.sub(r"(\*\*|__|`|(?<!\w)[*_]|[*_](?!\w))", "", block))
        if "&" in line and "<" not in line:
            line = html.fromstring(f"<p>{line}</p>").text_content()
        words = line.split()
        if len(words) < (8 if is_item else 6) or not re.search(r"[.!?][\"'”’)]*$", line):
            continue
        if not _ADDRESS.search(line) and is_english(words):
            yield one_line(line)


def is_english(words: list[str]) -> bool:
    """Tell whether enough of the words are common ones of English."""
    common = sum(_COMMON.fullmatch(word.lower().strip(".,")) is not None for word in words)
    return len(words) < 8 or common / len(words) > 0.12
