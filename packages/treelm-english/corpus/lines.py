"""What all texts have in common."""

import re


def one_line(text: str) -> str:
    """Write a text on one line, without characters that have no width."""
    return re.sub(r"\s+", " ", re.sub("[\u2060\ufeff\u200b\u00ad]", "", text)).strip()
