"""Trees put on a text that was made from the same sentences, word for word that of the text.

Perplexities of the field are of texts that no treebank has as they stand: Mikolov's Penn Treebank lacks punctuation and
rare words, WikiText has paragraphs for lines. Here a treebank, or a parser's output, gives its structure to the text.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from heapq import heappop, heappush
from itertools import accumulate, pairwise
from typing import NamedTuple

from treelm.corpora.sentence import MIKOLOV_NUMBER, PUNCTUATION_TAGS, Sentence
from treelm.errors import InputError
from treelm.trees.brackets import UNKNOWN_TAG, unescape
from treelm.trees.transforms import UNPARSED, replace_words
from treelm.trees.tree import Tree

SEVERAL = "ROOT"
"""Label over the trees of a line that has several, or words beside its trees."""
_START = 3  # words by which trees are looked up
_NEAR = 20  # trees after the last one that are tried where a line has another spelling than expected
_LEAST_SHARE = 0.1  # of trees or of lines, where they belong together
UNKNOWNS = ("<unk>", "<UNK>")
_QUOTES = {"``": '"', "''": '"', "“": '"', "”": '"'}
_SET_APART = re.compile(r"@([^\sa-zA-Z0-9])@")  # of WikiText: "mid @-@ 1980s", "1 @,@ 000", "0 @.@ 7"
_JOINED = re.compile(r"(?<=[^\W_])(-)(?=[^\W_])|(?<=[0-9])([,.])(?=[0-9])")
_LETTER_OR_DIGIT = re.compile(r"[^\W_]")
_ALWAYS_CAPITAL = {*UNKNOWNS, "N"}
_MOST_JOINED = 4  # words that are one word on the other side
_MOST_OTHERWISE = 3  # one in so many words of a tree may be in the text otherwise than expected
_MOST_CAPITALS = 0.01  # share of other word forms with capitals in a text that is in lower case


class _Placed(NamedTuple):
    """A tree on the words of a line from ``start``; each of its words takes so many of them."""

    tree: int
    start: int
    counts: tuple[int, ...]
    is_expected: bool = True

    @property
    def end(self) -> int:
        """The first word of the line behind the tree."""
        return self.start + sum(self.counts)


def align(trees: Sequence[Sentence], lines: Sequence[Sentence]) -> tuple[list[Sentence], dict[str, int]]:
    """Give each line of a text its tree, and count; the words of a line stay as they are.

    A tree is used once. Order plays a part only among trees of the same words, of which the one is taken that is
    nearest to the tree before. A line that one tree covers has that tree, without the words that the text leaves out
    and with words of the text instead of others; one of several trees has them under ``ROOT``, with words that no
    tree covers between them; one without is flat and labelled ``UNPARSED``; a line without words has no tree.

    Trees labelled ``UNPARSED`` are none. Raises ``InputError`` for a sentence without a tree among ``trees``, for a
    word of the text that brackets cannot hold, and if less than a tenth of the trees stands in the text, on less than a
    tenth of its lines: any two texts share a few sentences.
    """
    trees = [one for one in trees if one.tree is None or one.tree.label != UNPARSED]
    placed = _Aligner(trees, lines).place()
    counts = _count(trees, lines, placed)
    num_used, num_lines = counts["trees_used"], counts["lines"] - counts["lines_without_tree"]
    if not num_used or (num_used < _LEAST_SHARE * len(trees) and num_lines < _LEAST_SHARE * counts["lines"]):
        remedy = "give the trees of this text's sentences; the text has one sentence or paragraph a line"
        found = f"{num_used:,} of {len(trees):,} trees are found, on {num_lines:,} of {counts['lines']:,} lines"
        raise InputError(found, where=lines[0].source if lines else None, remedy=remedy)
    pairs = zip(lines, placed, strict=True)
    return [_with_tree(line, own, trees) if line.words else line for line, own in pairs], counts


class _Aligner:
    """The places of trees in the lines, as far as they are found."""

    def __init__(self, trees: Sequence[Sentence], lines: Sequence[Sentence]) -> None:
        """Work out what to expect of each tree."""
        spelling = Spelling({word for line in lines for word in line.words})
        self._lines = [tuple(map(spelling.compared, line.words)) for line in lines]
        self._forms = [tuple(map(spelling.compared, sentence.words)) for sentence in trees]
        self._expected = [_expected(sentence, spelling) for sentence in trees]
        self._keys = [tuple(form for forms in expected for form in forms) for expected in self._expected]
        self._is_free = [bool(key) for key in self._keys]
        self._starts: dict[tuple[str, ...], list[int]] = defaultdict(list)
        for tree, key in enumerate(self._keys):
            self._starts[key[:_START]].append(tree)

    def place(self) -> list[list[_Placed]]:
        """The trees of every line: first those that are the whole line as expected, then those within the others."""
        placed: list[list[_Placed]] = [[] for _ in self._lines]
        for find in (self._whole, self._within):
            last = -1
            for own, words in zip(placed, self._lines, strict=True):
                if not own:
                    own += find(words, last)
                last = own[-1].tree if own else last
        return placed

    def _whole(self, words: tuple[str, ...], last: int) -> list[_Placed]:
        exact = self._exact(words, 0, self._starts.get(words[:_START], ()))
        return self._take([one for one in exact if one.end == len(words)], last)

    def _within(self, words: tuple[str, ...], last: int) -> list[_Placed]:
        """The trees of a line, from left to right, first of all the one after the last."""
        found: list[_Placed] = []
        start, is_boundary = 0, True
        while start < len(words):
            own = self._begins(words, start, last) if is_boundary else []
            found += own
            start, last = (own[0].end, own[0].tree) if own else (start + 1, last)
            is_boundary = bool(own) or is_sign(words[start - 1])
        return found

    def _begins(self, words: tuple[str, ...], start: int, last: int) -> list[_Placed]:
        """The tree of the words from ``start`` on: the nearest that is expected to be spelled so, else the best fit."""
        candidates = [*self._next(last, 1), *self._starts.get(words[start : start + _START], ())]
        exact = [one for one in self._exact(words, start, candidates) if self._ends(words, one)]
        if exact:
            return self._take(exact, last)
        fits = []
        for tree in self._next(last, _NEAR):
            fit = fit_words(self._forms[tree], self._expected[tree], words, start) if self._is_free[tree] else None
            if fit is not None and self._ends(words, placed := _Placed(tree, start, fit[1], is_expected=False)):
                fits.append((fit[0], placed))
        return self._take([min(fits)[1]], last) if fits else []

    def _exact(self, words: tuple[str, ...], start: int, trees: Collection[int]) -> list[_Placed]:
        """The free ones of some trees that are as expected the words from ``start`` on."""
        return [
            _Placed(tree, start, tuple(map(len, self._expected[tree])))
            for tree in trees
            if self._is_free[tree] and words[start : start + len(self._keys[tree])] == self._keys[tree]
        ]

    def _take(self, found: list[_Placed], last: int) -> list[_Placed]:
        """The one whose tree is nearest to the one after the last, and free no more."""
        if not found:
            return []
        nearest = min(found, key=lambda placed: abs(placed.tree - last - 1))
        self._is_free[nearest.tree] = False
        return [nearest]

    def _ends(self, words: tuple[str, ...], placed: _Placed) -> bool:
        """Tell whether a sentence may end where the tree does: with the line, a sign, or where the next tree begins."""
        if placed.end == len(words) or is_sign(words[placed.end - 1]):
            return placed.end > placed.start
        after = self._keys[placed.tree + 1][:_START] if placed.tree + 1 < len(self._keys) else ()
        return bool(after) and words[placed.end : placed.end + len(after)] == after

    def _next(self, last: int, most: int) -> range:
        return range(last + 1, min(last + 1 + most, len(self._keys)))


def _count(trees: Sequence[Sentence], lines: Sequence[Sentence], placed: Sequence[Sequence[_Placed]]) -> dict[str, int]:
    """Trees, lines and words; lines in part have words that are in no tree."""
    used = [one for own in placed for one in own]
    whole = [
        len(own) for own, line in zip(placed, lines, strict=True) if own and sum(map(_size, own)) == len(line.words)
    ]
    num_lines, num_with_trees = sum(bool(line.words) for line in lines), sum(map(bool, placed))
    return {
        "trees": len(trees),
        "trees_used": len(used),
        "trees_spelled_otherwise": sum(not one.is_expected for one in used),
        "lines": num_lines,
        "lines_of_one_tree": whole.count(1),
        "lines_of_several_trees": len(whole) - whole.count(1),
        "lines_in_part": num_with_trees - len(whole),
        "lines_without_tree": num_lines - num_with_trees,
        "blank_lines": len(lines) - num_lines,
        "words": sum(len(line.words) for line in lines),
        "words_in_trees": sum(map(_size, used)),
    }


def _size(placed: _Placed) -> int:
    return sum(placed.counts)


def _expected(sentence: Sentence, spelling: Spelling) -> list[tuple[str, ...]]:
    if sentence.tree is None:
        raise InputError("a sentence without a tree", where=sentence.where, remedy="give brackets or CoNLL-U")
    tags = sentence.tags or (UNKNOWN_TAG,) * len(sentence.words)
    pairs = zip(sentence.words, tags, strict=True)
    return [spelling.expected(word, None if tag == UNKNOWN_TAG else tag) for word, tag in pairs]


def _with_tree(line: Sentence, placed: Sequence[_Placed], trees: Sequence[Sentence]) -> Sentence:
    """The line under the trees that are placed on it."""
    bad = next((word for word in line.words if unescape(word) != word), None)
    if bad is not None:
        raise InputError(f"{bad!r}, which brackets cannot hold", where=line.where, remedy="write the bracket itself")
    children: list[Tree | str] = []
    tags = [UNKNOWN_TAG] * len(line.words)
    place = 0
    for one in placed:
        source = trees[one.tree]
        assert source.tree is not None
        ends = list(accumulate(one.counts, initial=one.start))
        tree = replace_words(source.tree, [line.words[start:end] for start, end in pairwise(ends)])
        assert tree is not None
        children += [*line.words[place : one.start], tree]
        if source.tags:
            tags[one.start : one.end] = [
                tag for tag, count in zip(source.tags, one.counts, strict=True) for _ in range(count)
            ]
        place = one.end
    children += line.words[place:]
    only = children[0] if len(children) == 1 else None
    top = only if isinstance(only, Tree) else Tree(SEVERAL if placed else UNPARSED, children)
    return replace(line, tree=top, tags=tuple(tags))


# How a text writes the words of trees: Mikolov's Penn Treebank, WikiText, and what lies between.


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
        if self._sets_apart and len(parts := [part for part in _JOINED.split(form) if part]) > 1:
            return tuple(part if part in self._forms else self._unknown or part for part in parts)
        return (self._unknown or form,)


def is_sign(word: str) -> bool:
    """Tell whether a word has neither letter nor digit: a text may leave it out."""
    return not _LETTER_OR_DIGIT.search(word)


def fit_words(
    old: Sequence[str], expected: Sequence[tuple[str, ...]], words: Sequence[str], start: int = 0
) -> tuple[int, tuple[int, ...]] | None:
    """The cheapest fit of all words of a tree to those of the text from ``start`` on; None if it costs too much.

    A word of the tree may, at a cost of 1, be unknown in the text, be left out if it is a sign, be cut in several
    there, or be one with the next ones there. ``old`` are the words of the tree in their form of comparison. Returns
    the cost and how many words of the text each word of the tree takes.
    """
    queue: list[tuple[int, int, int, tuple[int, ...]]] = [(0, 0, -start, ())]  # cost, words left of tree and text
    seen = set()
    while queue:
        cost, minus_index, minus_place, counts = heappop(queue)
        index, place = -minus_index, -minus_place
        if index == len(old):
            return cost, counts
        if (index, place) in seen:
            continue
        seen.add((index, place))
        for more, taken, given in _steps(old, expected, words, index, place):
            if cost + more <= len(old) // _MOST_OTHERWISE:
                after = (*counts, *[0] * (taken - 1), given)
                heappush(queue, (cost + more, -index - taken, -place - given, after))
    return None


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
