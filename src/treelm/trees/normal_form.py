"""The normal form of trees from bracket files: which steps lead to it, and what they do to labels and words."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

UNKNOWN_TAG: Final = "X"
"""Part-of-speech tag that is written when none is known."""
TOP_LABELS: Final = frozenset({"", "ROOT", "TOP"})
"""Labels of outer brackets, which hold a tree and are no constituent."""
EMPTY_TAG: Final = "-NONE-"
"""Tag of traces and other words without sound."""

MAX_WORDS: Final = 100_000
"""Forms that a table of words holds before it starts afresh."""

_ESCAPES = {"-LRB-": "(", "-RRB-": ")", "-LSB-": "[", "-RSB-": "]", "-LCB-": "{", "-RCB-": "}"}
_ESCAPED = re.compile("|".join(_ESCAPES))
_LABEL = re.compile(r"-.*|.[^-=]*|", re.DOTALL)


@dataclass(frozen=True, kw_only=True, slots=True)
class Normalisation:
    """What the reader does to a tree, in this order; each step can be turned off.

    Cut function tags off labels (``NP-SBJ=1`` becomes ``NP``); drop words tagged ``-NONE-`` and constituents that they
    leave empty; unwrap the outer bracket (empty, ROOT or TOP) when its only child is a constituent, and else name an
    empty one ROOT; write ``-LRB-`` and its like as brackets, also inside words; drop part-of-speech tags.
    """

    strip_functions: bool = True
    drop_empties: bool = True
    unwrap: bool = True
    unescape: bool = True
    drop_tags: bool = True


def strip_function(label: str) -> str:
    """The label without function tags and indices: cut at the first ``-`` or ``=`` after the first character.

    Labels that start with ``-`` (``-NONE-``, ``-LRB-``) stay whole.
    """
    match = _LABEL.match(label)
    return match.group() if match else label


def unescape(word: str) -> str:
    """The word with ``-LRB-`` and its like written as brackets, wherever they stand."""
    return _ESCAPED.sub(lambda match: _ESCAPES[match.group()], word) if "-" in word else word


class StrippedLabels(dict[str, str]):
    """A table of what labels become without function tags; each is worked out once."""

    def __missing__(self, label: str) -> str:
        self[label] = stripped = strip_function(label)
        return stripped


class UnescapedWords(dict[str, str]):
    """A table of what words become without escapes; each is worked out once while the table is small."""

    def __missing__(self, word: str) -> str:
        if len(self) >= MAX_WORDS:
            self.clear()
        self[word] = unescaped = unescape(word)
        return unescaped


class Unchanged(dict[str, str]):
    """A table of labels or words that stay as they are."""

    def __missing__(self, text: str) -> str:
        return text
