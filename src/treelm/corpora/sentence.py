"""One sentence as it was read, and as experiments preprocess it: fewer words, in fewer forms."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Literal

from treelm.errors import InputError
from treelm.trees.transforms import keep_words
from treelm.trees.tree import Tree

Preprocessing = Literal["none", "prpn", "mikolov"]

PUNCTUATION_TAGS = frozenset(
    {",", ".", ":", "``", "''", "-LRB-", "-RRB-", "-NONE-", "HYPH", "NFP", "PUNCT"}
    | {"$,", "$.", "$(", "$[", "$*LRB*", "$*RRB*", "PU", "PONCT", '"', "'"}
)
"""Tags of punctuation and empty elements; ``HYPH``, ``NFP`` of OntoNotes, ``PUNCT`` of UD, ``$,`` ``$.`` ``$(`` of
German treebanks (STTS; ``$[`` ``$*LRB*`` in brackets), ``PU`` of the Penn Chinese Treebank, ``PONCT`` of the French
Treebank, quotation marks of the Penn Parsed Corpora of Historical English."""
REMOVED_TAGS = PUNCTUATION_TAGS | {"$", "#"}
"""Tags of punctuation, empty elements and currency signs."""
MIKOLOV_NUMBER = re.compile(r"%|[-.,:/\\]*[0-9][-.,:/\\0-9]*")
"""Words that Mikolov's text writes ``N``: the sign of percent, numbers, fractions, ranges, times of day."""
_MIKOLOV_MOST_TOKENS = 99
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
    document: int = 0  # number of its document in the source, from 0

    @property
    def where(self) -> str:
        """``file:line``, as error messages name it."""
        return f"{self.source}:{self.line}"


def preprocess(sentence: Sentence, how: Literal["prpn", "mikolov"]) -> Sentence | None:
    """The sentence with fewer words, in fewer forms, and without constituents that this empties; None without words.

    ``prpn`` reads sentences as the parsing experiments of PRPN do (Shen et al. 2018): punctuation and currency signs
    are left out, words are in lower case, and each stretch of digits is ``N``. Rare words are left to the vocabulary,
    which has ``min_count = 3`` there.

    ``mikolov`` is Mikolov's text of the Penn Treebank (Mikolov et al. 2010): punctuation is left out, words are in
    lower case, numbers and ``%`` are ``N``; ``$``, ``#`` and ``10-year`` stay. Rare words are left to the vocabulary
    here too, which has ``max_size = 9998``. The text lacks a few sentences, which have, as far as can be seen, 100
    tokens or more, punctuation counted; such sentences are left out.

    Raises ``InputError`` for a sentence without part-of-speech tags.
    """
    if sentence.tags is None:
        remedy = "give data with tags, or preprocess = none"
        found = f'words without part-of-speech tags, which preprocess = "{how}" needs'
        raise InputError(found, where=sentence.where, remedy=remedy)
    if how == "mikolov" and len(sentence.words) > _MIKOLOV_MOST_TOKENS:
        return None
    keep = [tag not in (REMOVED_TAGS if how == "prpn" else PUNCTUATION_TAGS) for tag in sentence.tags]
    words = [word.lower() for word, kept in zip(sentence.words, keep, strict=True) if kept]
    if how == "prpn":
        words = [_DIGITS.sub("N", word) for word in words]
    else:
        words = ["N" if MIKOLOV_NUMBER.fullmatch(word) else word for word in words]
    if not words:
        return None
    return replace(
        sentence,
        words=tuple(words),
        tree=None if sentence.tree is None else keep_words(sentence.tree, keep, words),
        tags=tuple(tag for tag, kept in zip(sentence.tags, keep, strict=True) if kept),
    )
