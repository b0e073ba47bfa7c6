"""How a text writes the words of trees: Mikolov's Penn Treebank, WikiText, and what lies between."""

from __future__ import annotations

import re
from collections.abc import Collection

from treelm.corpora.sentence import MIKOLOV_NUMBER, PUNCTUATION_TAGS

UNKNOWNS = ("<unk>", "<UNK>")
_QUOTES = {"``": '"', "''": '"', "“": '"', "”": '"'}
_SET_APART = re.compile(r"@([^\sa-zA-Z0-9])@")  # of WikiText: "mid @-@ 1980s", "1 @,@ 000", "0 @.@ 7"
_JOINED = re.compile(r"(?<=[^\W_])(-)(?=[^\W_])|(?<=[0-9])([,.])(?=[0-9])")
_LETTER_OR_DIGIT = re.compile(r"[^\W_]")
_ALWAYS_CAPITAL = {*UNKNOWNS, "N"}
_MOST_CAPITALS = 0.01  # share of other word forms with capitals in a text that is in lower case


class Spelling:
    """The form of words in a text, found out from the text's word forms.

    Words of trees and of the text meet in forms of comparison: quotation marks are one, ``@-@`` is ``-``, ``\\/`` is
    ``/``, and case counts only if the text has it.
    """

    def __init__(self, forms: Collection[str]) -> None:
        """Find out about case, punctuation, numbers, hyphens and unknown words."""
        num_capitals = sum(form != form.lower() for form in forms if form not in _ALWAYS_CAPITAL)
        self._has_case = num_capitals > _MOST_CAPITALS * len(forms)
        self._has_punctuation = not {",", "."}.isdisjoint(forms)
        self._sets_apart = any(_SET_APART.fullmatch(form) for form in forms)
        self._has_n = "N" in forms and not self._has_case
        self._unknown = next((form for form in UNKNOWNS if form in forms), None)
        self._forms = frozenset(map(self.compared, forms))

    def compared(self, word: str) -> str:
        """The form in which a word, of a tree or of the text, is compared."""
        if word in UNKNOWNS:
            return word
        word = _QUOTES.get(word, word)
        if "@" in word or "\\" in word:
            word = _SET_APART.sub(r"\1", word.replace("\\/", "/").replace("\\*", "*"))
        return word if self._has_case else word.lower()

    def expected(self, word: str, tag: str | None = None) -> tuple[str, ...]:
        """The forms of comparison that are expected of a word of a tree: none, one or several.

        None of punctuation that the text leaves out; a number of Mikolov's is ``n``; where WikiText sets hyphens apart,
        ``mid-1980s`` is three; what the text does not have is unknown.
        """
        is_number = self._has_n and MIKOLOV_NUMBER.fullmatch(word) is not None
        if not self._has_punctuation and (tag in PUNCTUATION_TAGS or (tag is None and is_sign(word) and not is_number)):
            return ()
        form = self.compared(word)
        if form in self._forms:
            return (form,)
        if is_number:
            return ("n",)
        if self._sets_apart and len(parts := _parts(form)) > 1:
            return tuple(part if part in self._forms else self._unknown or part for part in parts)
        return (self._unknown or form,)


def _parts(form: str) -> list[str]:
    return [part for part in _JOINED.split(form) if part]


def is_sign(word: str) -> bool:
    """Tell whether a word has neither letter nor digit: a text may leave it out."""
    return not _LETTER_OR_DIGIT.search(word)
