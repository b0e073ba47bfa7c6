"""text8: 100 million characters of Wikipedia on one line, of the letters a to z and blanks (Mahoney 2006)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from treelm.corpora.inputs import open_bytes, read_whole
from treelm.corpora.outputs import replacing
from treelm.errors import InputError

PARTS = {"train": (0, 90), "dev": (90, 95), "test": (95, 100)}  # percent; of 10^8 characters 90M, 5M and 5M
_WORDS_A_LINE = 1000


def split_text8(file: Path, folder: Path) -> dict[str, int]:
    """Write ``train.txt``, ``dev.txt`` and ``test.txt`` with 90, 5 and 5 percent of the characters; returns how many.

    Lines are cut at blanks and mean nothing: train with ``sentence_ends = false``. A word on the border of two parts is
    cut in two. With a character vocabulary, a word's end mark is the blank after it, so a part of n characters is n
    symbols (one more where it begins within a word, one less where it begins with a blank). Raises ``InputError`` for
    other characters than the 27 of text8.
    """
    with open_bytes(file) as stream:
        text = read_whole(stream, name=str(file)).rstrip(b"\r\n")
    strange = re.search(rb"[^a-z ]", text)
    if strange is not None:
        found = f"byte 0x{text[strange.start()]:02x} at {strange.start()}, where text8 has letters a to z and blanks"
        raise InputError(found, where=str(file), remedy="give the unpacked file text8, or prepare other text as lines")
    if not text:
        raise InputError("empty", where=str(file), remedy="give the unpacked file text8")
    folder.mkdir(parents=True, exist_ok=True)
    counts = {}
    for name, (first, last) in PARTS.items():
        part = text[len(text) * first // 100 : len(text) * last // 100]
        with replacing(folder / f"{name}.txt") as out:
            out.writelines(line + b"\n" for line in _lines(part))
        counts[name] = len(part)
    return counts


def _lines(text: bytes) -> Iterator[bytes]:
    words = text.split()
    for start in range(0, len(words), _WORDS_A_LINE):
        yield b" ".join(words[start : start + _WORDS_A_LINE])
