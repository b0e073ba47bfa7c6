"""Sentences of Wikipedia out of WikiSplit: its first column, words apart by blanks."""

from __future__ import annotations

import re
from collections.abc import Iterator

_ODD = re.compile(r"(?:^| )[-–] | ' |^'|<|\||=|http|\( \)|\( ,")
_END, _START = re.compile(r"[.?!]( \")?$"), re.compile(r'(?:" )?[A-Z0-9]')


def wikisplit_sentences(part: str, text: str) -> Iterator[dict[str, str]]:
    """Give the sentences of a part that begin and end as sentences do, a document each."""
    for number, line in enumerate(text.splitlines()):
        sentence = line.split("\t")[0].replace("''", '"').strip()
        is_balanced = sentence.count('"') % 2 == 0 and sentence.count("(") == sentence.count(")")
        if is_balanced and _START.match(sentence) and _END.search(sentence) and not _ODD.search(sentence):
            yield {
                "work": f"{part}/{number}",
                "title": f"{part} line {number + 1}",
                "author": "",
                "date": "to 2018",
                "licence": "CC BY-SA 4.0",
                "text": sentence,
            }
