"""Texts of NLTK's data: MASC, and speeches of presidents of the USA."""

from __future__ import annotations

import re

from lines import one_line

FIRST_YEAR = 1900
_FEWEST_WORDS = 80
_NOT_MASC = re.compile(r"^(sw\d|wsj_|NYT|2\d{4}$|A1\.|.*_ENG_|enron)", re.IGNORECASE)  # Switchboard, news wire, e-mail
_GENRES_LEFT_OUT = (
    "newspaper",
    "twitter",
    "spam",
    "jokes",
    "email",
    "face-to-face",
    "telephone",
    "movie-script",
)


def masc_document(name: str, genre: str, content: bytes) -> dict[str, str] | None:
    """Read words from words with tags, a sentence a line; None for genres that are no prose, and for short texts."""
    stem = name.rpartition("/")[2].removesuffix(".txt")
    if _NOT_MASC.match(stem) or genre in _GENRES_LEFT_OUT:
        return None
    lines = []
    for line in content.decode("utf-8", "replace").splitlines():
        words = [word.rpartition("_")[0].replace("_", " ") for word in line.split() if "_" in word]
        words = [word for word in words if word.strip()]
        if words:
            lines.append(" ".join(words))
    if sum(len(line.split()) for line in lines) < _FEWEST_WORDS:
        return None
    return {
        "work": name,
        "title": stem,
        "author": "",
        "date": "1990-2009",
        "licence": f"MASC, open ({genre})",
        "text": "\n".join(lines),
    }


def speech_document(package: str, name: str, content: bytes) -> dict[str, str] | None:
    """Read a speech; None for earlier ones and for what is none."""
    found = re.search(r"/((\d{4})-([\w-]+))\.txt$", name)
    if found is None or int(found[2]) < FIRST_YEAR:
        return None
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        text = content.decode("cp1252", "replace")
    text = re.sub(r"\((?:Applause|Laughter)[^)]*\)|\[[^\]]{0,40}\]", "", text)
    paragraphs = []
    for block in re.split(r"\n\s*\n|\n(?=[A-Z\"“])", text):
        line = re.sub(r"^THE PRESIDENT:\s*", "", one_line(block))
        if len(line.split()) >= 4 and re.search(r"[.!?\"”]$", line) and not line.isupper():
            paragraphs.append(line)
    if not paragraphs:
        return None
    return {
        "work": f"{package}/{found[1]}",
        "title": found[1],
        "author": found[3],
        "date": found[2],
        "licence": "public domain",
        "text": "\n\n".join(paragraphs),
    }
