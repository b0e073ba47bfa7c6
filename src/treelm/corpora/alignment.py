"""Trees put on a text that was made from the same sentences, so that their words are, word for word, those of the text.

Perplexities are often published on texts that no treebank contains as they stand: Mikolov's Penn Treebank lacks
punctuation and rare words, and WikiText has one paragraph a line. Here a treebank, or the output of a parser, gives its
structure to such a text.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import replace
from itertools import accumulate, chain, pairwise
from typing import NamedTuple

from treelm.corpora.sentence import MIKOLOV_NUMBER, PUNCTUATION_TAGS, Sentence
from treelm.errors import InputError
from treelm.trees.brackets import UNKNOWN_TAG, unescape
from treelm.trees.transforms import UNPARSED, replace_words
from treelm.trees.tree import Tree

SEVERAL = "ROOT"  # label over the trees of a line that has several, or words beside its trees
_START = 3  # words by which trees are looked up
_LEAST_SHARE = 0.1  # of trees or of lines, where they belong together
UNKNOWNS = ("<unk>", "<UNK>")
_QUOTES = {"``": '"', "''": '"', "“": '"', "”": '"'}
_SET_APART = re.compile(r"@([^\sa-zA-Z0-9])@")  # of WikiText: "mid @-@ 1980s", "1 @,@ 000", "0 @.@ 7"
_JOINED = re.compile(r"(?<=[^\W_])(-)(?=[^\W_])|(?<=[0-9])([,.])(?=[0-9])")
_LETTER_OR_DIGIT = re.compile(r"[^\W_]")
_ALWAYS_CAPITAL = {*UNKNOWNS, "N"}
_MOST_CAPITALS = 0.01  # share of other word forms with capitals in a text that is in lower case


class _Placed(NamedTuple):
    """A tree on the words of a line from ``start``; each of its words takes so many of them."""

    tree: int
    start: int
    counts: tuple[int, ...]

    @property
    def end(self) -> int:
        """The first word of the line behind the tree."""
        return self.start + sum(self.counts)


def align(trees: Sequence[Sentence], lines: Sequence[Sentence]) -> tuple[list[Sentence], dict[str, int]]:
    """Give each line of a text its tree; returns the lines with trees, and counts of trees, lines and words.

    The words of a line stay as they are. A tree is used once; of several trees over the same words, the one nearest to
    the tree before is taken, and order plays no other part. A line that one tree covers has that tree, without the
    words that the text leaves out and with the text's words in place of others. A line of several trees has them under
    ``ROOT``, with words that no tree covers between them. A line without a tree is flat and labelled ``UNPARSED``; a
    line without words has no tree.

    Trees labelled ``UNPARSED`` are ignored. Raises ``InputError`` for a sentence without a tree among ``trees``, for a
    word of the text that brackets cannot hold, and if less than a tenth of the trees stands on less than a tenth of the
    lines, because any two texts have a few sentences in common.
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
    """Finds the trees of each line: a tree is there if the line has its words as the text would spell them."""

    def __init__(self, trees: Sequence[Sentence], lines: Sequence[Sentence]) -> None:
        """Work out what to expect of each tree."""
        spelling = Spelling({word for line in lines for word in line.words})
        self._lines = [tuple(map(spelling.compared, line.words)) for line in lines]
        expected = [_expected(sentence, spelling) for sentence in trees]
        self._counts = [tuple(map(len, forms)) for forms in expected]
        self._keys = [tuple(chain.from_iterable(forms)) for forms in expected]
        self._is_free = [bool(key) for key in self._keys]
        self._starts: dict[tuple[str, ...], list[int]] = defaultdict(list)
        for tree, key in enumerate(self._keys):
            self._starts[key[:_START]].append(tree)

    def place(self) -> list[list[_Placed]]:
        """The trees of every line: first those that are the whole line, then those within the others."""
        placed: list[list[_Placed]] = [[] for _ in self._lines]
        for is_whole in (True, False):
            last = -1
            for own, words in zip(placed, self._lines, strict=True):
                if not own and is_whole:
                    own += self._take([one for one in self._found(words, 0, last) if one.end == len(words)], last)
                elif not own:
                    own += self._within(words, last)
                last = own[-1].tree if own else last
        return placed

    def _within(self, words: tuple[str, ...], last: int) -> list[_Placed]:
        """The trees of a line, from left to right; each begins the line, or behind another one or a sign."""
        found: list[_Placed] = []
        start, is_boundary = 0, True
        while start < len(words):
            fitting = [one for one in self._found(words, start, last) if self._ends(words, one)] if is_boundary else []
            own = self._take(fitting, last)
            found += own
            start, last = (own[0].end, own[0].tree) if own else (start + 1, last)
            is_boundary = bool(own) or is_sign(words[start - 1])
        return found

    def _found(self, words: tuple[str, ...], start: int, last: int) -> list[_Placed]:
        """The free trees, first of all the one after the last, of which the words from ``start`` on are the words."""
        following = range(last + 1, min(last + 2, len(self._keys)))
        return [
            _Placed(tree, start, self._counts[tree])
            for tree in (*following, *self._starts.get(words[start : start + _START], ()))
            if self._is_free[tree] and words[start : start + len(self._keys[tree])] == self._keys[tree]
        ]

    def _take(self, found: list[_Placed], last: int) -> list[_Placed]:
        """The one whose tree is nearest to the one after the last, and free no more."""
        nearest = sorted(found, key=lambda placed: abs(placed.tree - last - 1))[:1]
        for placed in nearest:
            self._is_free[placed.tree] = False
        return nearest

    def _ends(self, words: tuple[str, ...], placed: _Placed) -> bool:
        """Tell whether a sentence may end where the tree does: with the line, a sign, or where the next tree begins."""
        if placed.end == len(words) or is_sign(words[placed.end - 1]):
            return True
        after = self._keys[placed.tree + 1][:_START] if placed.tree + 1 < len(self._keys) else ()
        return bool(after) and words[placed.end : placed.end + len(after)] == after


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

        There is none for punctuation that the text leaves out. A number in Mikolov's text is ``n``. Where WikiText sets
        hyphens apart, ``mid-1980s`` has three forms. A form that the text does not have is that of its unknown word.
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
