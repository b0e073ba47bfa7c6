"""One sentence as it was read, and as unsupervised parsers are given it: fewer words, in fewer forms."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Literal

from treelm.errors import InputError
from treelm.trees.transforms import keep_words
from treelm.trees.tree import Tree

Preprocessing = Literal["none", "prpn"]

REMOVED_TAGS = frozenset({",", ".", ":", "``", "''", "-LRB-", "-RRB-", "-NONE-", "$", "#", "HYPH", "NFP", "PUNCT"})
"""Tags of punctuation, currency signs and empty elements; ``HYPH``, ``NFP`` of OntoNotes, ``PUNCT`` of UD."""
_DIGITS = re.compile("[0-9]+")


@dataclass(frozen=True, kw_only=True, slots=True)
class Sentence:
    """Words, with the tree if the source has one, and where they stand."""

    words: tuple[str, ...]
    tree: Tree | None = None
    tags: tuple[str, ...] | None = None  # part-of-speech tags of the words, if the source has them
    text: str | None = None  # the text that the words were cut from, if the source gives it
    identifier: str  # the source's own sentence id, else the number of its line
    source: str  # file name, or "<stdin>"
    line: int  # of the sentence's first line, from 1

    @property
    def where(self) -> str:
        """``file:line``, as error messages name it."""
        return f"{self.source}:{self.line}"


def preprocess_for_parsing(sentence: Sentence) -> Sentence | None:
    """The sentence as PRPN's experiments on parsing read it (Shen et al. 2018); None when no word is left.

    Punctuation and currency signs are left out, with what this empties of the tree; words are in lower case, each
    stretch of digits is ``N``. Rare words are the vocabulary's business (``min_count = 3`` there). Raises
    ``InputError`` for a sentence without part-of-speech tags.
    """
    if sentence.tags is None:
        remedy = "give data with tags, or preprocess = none"
        found = 'words without part-of-speech tags, which preprocess = "prpn" needs'
        raise InputError(found, where=sentence.where, remedy=remedy)
    keep = [tag not in REMOVED_TAGS for tag in sentence.tags]
    words = [_DIGITS.sub("N", word.lower()) for word, kept in zip(sentence.words, keep, strict=True) if kept]
    if not words:
        return None
    return replace(
        sentence,
        words=tuple(words),
        tree=None if sentence.tree is None else keep_words(sentence.tree, keep, words),
        tags=tuple(tag for tag, kept in zip(sentence.tags, keep, strict=True) if kept),
    )
