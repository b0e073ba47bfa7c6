"""Numbers in ASCII digits, as files and options write them; Python reads more: ``1_000``, and digits of all scripts."""

from __future__ import annotations


def integer(text: str) -> int:
    """The whole number of a text; raises ``ValueError`` for what is none, and for one of thousands of digits."""
    return int(_plain(text))


def number(text: str) -> float:
    """The number of a text, inf and nan included; raises ``ValueError`` for what is none."""
    return float(_plain(text))


def _plain(text: str) -> str:
    if "_" in text or not text.isascii():
        raise ValueError(f"not a number: {text!r}")
    return text
