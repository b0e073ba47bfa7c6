"""How a text writes the words of trees: Mikolov's Penn Treebank, WikiText, and what lies between."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from treelm.corpora.sentence import MIKOLOV_NUMBER, PUNCTUATION_TAGS

UNKNOWNS = ("<unk>", "<UNK>")
_QUOTES = {"``": '"', "''": '"', "“": '"', "”": '"'}
_SET_APART = re.compile(r"@([^\sa-zA-Z0-9])@")  # of WikiText: "mid @-@ 1980s", "1 @,@ 000", "0 @.@ 7"
_JOINED = re.compile(r"(?<=[^\W_])(-)(?=[^\W_])|(?<=[0-9])([,.])(?=[0-9])")
_LETTER_OR_DIGIT = re.compile(r"[^\W_]")
_ALWAYS_CAPITAL = {*UNKNOWNS, "N"}
_MOST_JOINED = 4  # words that are one word on the other side
_MOST_OTHERWISE = 3  # one in so many words of a tree may be in the text otherwise than expected
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


class Fit(NamedTuple):
    """How the words of a tree fit those of a text: how many are not as expected, and how many each takes there."""

    cost: int
    counts: tuple[int, ...]


def fit_words(
    old: Sequence[str], expected: Sequence[tuple[str, ...]], words: Sequence[str], start: int = 0
) -> Fit | None:
    """The cheapest fit of all words of a tree to those of the text from ``start`` on; None if it costs too much.

    A word of the tree may, at a cost of 1, be unknown in the text, be left out if it is a sign, be cut in several
    there, or be one with the next ones there. ``old`` are the words of the tree in their form of comparison.
    """
    most = len(old) // _MOST_OTHERWISE
    layers: list[dict[int, tuple[int, int, int]]] = [{} for _ in range(len(old) + 1)]  # cost, words of both sides
    layers[0][start] = 0, 0, 0
    for index, layer in enumerate(layers[:-1]):
        for place, (cost, *_) in layer.items():
            for more, taken, given in _steps(old, expected, words, index, place):
                after = layers[index + taken]
                if cost + more <= min(most, after.get(place + given, (most,))[0]):
                    after[place + given] = cost + more, taken, given
    if not layers[-1]:
        return None
    place, (cost, *_) = min(layers[-1].items(), key=lambda item: (item[1][0], -item[0]))
    counts: list[int] = []
    index = len(old)
    while index:
        _, taken, given = layers[index][place]
        counts += [*[0] * (taken - 1), given]
        index, place = index - taken, place - given
    return Fit(cost, tuple(reversed(counts)))


def _steps(
    old: Sequence[str], expected: Sequence[tuple[str, ...]], words: Sequence[str], index: int, place: int
) -> Iterator[tuple[int, int, int]]:
    """What the word ``index`` of a tree may be at a place of the text: cost, words of the tree, words of the text."""
    form, usual = old[index], expected[index]
    if tuple(words[place : place + len(usual)]) == usual:
        yield 0, 1, len(usual)
    if is_sign(form):
        yield 1, 1, 0
    if place == len(words):
        return
    if words[place] in UNKNOWNS and not is_sign(form):
        yield 1, 1, 1
    for number in range(1, min(_MOST_JOINED, len(words) - place) + 1):
        if "".join(words[place : place + number]).lower() == form.lower():
            yield 1, 1, number
    for number in range(2, min(_MOST_JOINED, len(old) - index) + 1):
        if "".join(old[index : index + number]).lower() == words[place].lower():
            yield 1, number, 1
