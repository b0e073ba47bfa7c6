"""Edits that make a hostile file of a good one: bytes, tokens, lines and encodings are cut, flipped and repeated."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

LONG = 20_000
TOKENS: tuple[bytes, ...] = (
    b"",
    *(bytes([byte]) for byte in b"\0\t\n\r\v\f\x1b\x1c\x1f \"'#%&(),-./:;=<>[]\\_`{|}\x7f\x80\xff"),
    b"\r\n",
    b"\n\n",
    b"\xef\xbb\xbf",  # byte order mark
    b"\xff\xfe",
    b"\xed\xa0\x80",  # a lone surrogate
    b"\xc0\x80",  # an overlong NUL
    b"\xf4\x90\x80\x80",  # beyond Unicode
    *(character.encode() for character in "\x85\xa0\xad\u0301\u2028\u2029\u202e\u3000\ufeff\U0001f600é"),
    b"()",
    b"(X )",
    b"( (S (NN dog)) )",
    b"(-NONE- *)",
    b"-LRB-",
    b"--on-error",
    b"../../x",
    b"\\ud800",
    b"\\u0000",
    *(b"-1 0 1 2 1.5 1e999 -1e999 1e-999 nan inf NaN Infinity -Infinity 0x10 1_000 true null none".split()),
    b"9223372036854775808",
    b"340282366920938463463374607431768211456",
    b"1" * 5000,
    b"9" * 400,
    "²".encode(),
    "٣".encode(),
    b"{}",
    b"[]",
    b'""',
    b'"x"',
    b"[[x]]",
    b"\x1f\x8b\x08\x00",
    b"PK\x03\x04",
    b"\x80\x04cos\nsystem\n",
    b"(" * 3000,
    b"(S " * 3000,
    b")" * 3000,
    b"[" * 3000,
    b'{"a":' * 3000,
    b"-" * 3000,
    b"a" * LONG,
    b"a " * (LONG // 2),
)
_NUMBER, _WORD = re.compile(rb"[0-9]+"), re.compile(rb"[^\s\"(){}\[\],:=]+")


class Edit(NamedTuple):
    """One change: what it is, where (a share of the file), how much, and with which token."""

    kind: str
    place: float
    length: int
    token: int


def _truncate(data: bytes, at: int, edit: Edit) -> bytes:
    return data[:at]


def _flip(data: bytes, at: int, edit: Edit) -> bytes:
    return data[:at] + bytes([data[at] ^ (1 << edit.length % 8)]) + data[at + 1 :] if at < len(data) else data


def _replace(data: bytes, at: int, edit: Edit) -> bytes:
    """A token, which may be nothing, for some bytes or for none."""
    return data[:at] + TOKENS[edit.token % len(TOKENS)] + data[at + edit.length :]


def _repeat(data: bytes, at: int, edit: Edit) -> bytes:
    return data[:at] + data[at : at + edit.length] * (2 + edit.token % 40) + data[at + edit.length :]


def _word(data: bytes, at: int, edit: Edit) -> bytes:
    """Another token for the next number or word."""
    found = (_WORD if edit.length % 2 else _NUMBER).search(data, at)
    return data if found is None else data[: found.start()] + TOKENS[edit.token % len(TOKENS)] + data[found.end() :]


def _lines(data: bytes, at: int, edit: Edit) -> bytes:
    """A line left out, doubled or moved."""
    lines = data.split(b"\n")
    here, there = round(edit.place * (len(lines) - 1)), edit.length % len(lines)
    line = lines[here]
    match edit.token % 3:
        case 0:
            del lines[here]
        case 1:
            lines.insert(there, line)
        case _:
            lines[here], lines[there] = lines[there], line
    return b"\n".join(lines)


def _line_ends(data: bytes, at: int, edit: Edit) -> bytes:
    return data.replace(b"\n", (b"\r\n", b"\r", b"\n\n", b"", b"\x85")[edit.token % 5])


def _recode(data: bytes, at: int, edit: Edit) -> bytes:
    """The file, or its rest, in another encoding."""
    text = data[at if edit.length % 2 else 0 :].decode("utf-8", "replace")
    name = ("utf-16", "utf-16-le", "latin-1", "utf-8-sig", "cp1252")[edit.token % 5]
    return (data[:at] if edit.length % 2 else b"") + text.encode(name, "replace")


EDITS: dict[str, Callable[[bytes, int, Edit], bytes]] = {
    "truncate": _truncate,
    "flip": _flip,
    "replace": _replace,
    "repeat": _repeat,
    "word": _word,
    "lines": _lines,
    "line ends": _line_ends,
    "recode": _recode,
}
MOST_BYTES = 10 * LONG


def edited(data: bytes, edits: Sequence[Edit]) -> bytes:
    """The file after the edits, one after the other."""
    for edit in edits:
        data = EDITS[edit.kind](data, round(edit.place * len(data)), edit)[:MOST_BYTES]
    return data
