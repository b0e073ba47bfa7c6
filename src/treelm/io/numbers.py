"""Numbers as files and options write them: ASCII digits, a point, an exponent.

Python reads more, such as ``1_000`` and the digits of all scripts, which no other program does.
"""

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
