"""Trees put on a text that was made from the same sentences, word for word that of the text.

Perplexities of the field are of texts that no treebank has as they stand: Mikolov's Penn Treebank lacks punctuation and
rare words, WikiText has paragraphs for lines. Here a treebank, or a parser's output, gives its structure to the text.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from itertools import accumulate, pairwise
from typing import NamedTuple

from treelm.corpora.sentence import Sentence
from treelm.corpora.spelling import Spelling, fit_words, is_sign
from treelm.errors import InputError
from treelm.trees.bracket_reader import unescape
from treelm.trees.transforms import UNKNOWN_TAG, UNPARSED, replace_words
from treelm.trees.tree import Tree

SEVERAL = "ROOT"
"""Label over the trees of a line that has several, or words beside its trees."""
_START = 3  # words by which trees that begin within a line are looked up
_NEAR = 20  # trees after the last one that are tried where a line has another spelling than expected
_LEAST_SHARE = 0.1  # of trees or of lines, where they belong together


@dataclass(frozen=True, kw_only=True)
class AlignmentReport:
    """Counts of what was aligned."""

    trees: int
    trees_used: int
    trees_spelled_otherwise: int  # used, though the text does not have their words as expected
    lines: int  # that have words
    lines_of_one_tree: int
    lines_of_several_trees: int
    lines_in_part: int  # some words are in no tree
    lines_without_tree: int
    blank_lines: int
    words: int
    words_in_trees: int

    @property
    def lines_with_trees(self) -> int:
        """Lines that have a tree or several."""
        return self.lines - self.lines_without_tree

    def to_json(self) -> dict[str, int]:
        """The counts by name."""
        return {one.name: getattr(self, one.name) for one in fields(self)}


class Placed(NamedTuple):
    """A tree on the words of a line from ``start``; each of its words takes so many of them."""

    tree: int
    start: int
    counts: tuple[int, ...]
    is_expected: bool

    @property
    def end(self) -> int:
        """The first word of the line behind the tree."""
        return self.start + sum(self.counts)


def align(trees: Sequence[Sentence], lines: Sequence[Sentence]) -> tuple[list[Sentence], AlignmentReport]:
    """Give each line of a text its tree; the words of a line stay as they are.

    A tree is used once. Order plays a part only where several places are as good. A line that one tree covers has that
    tree, without the words that the text leaves out and with words of the text in the place of others; one of several
    trees has them under ``ROOT``, with words that no tree covers between them; one without is flat and labelled
    ``UNPARSED``; a line without words has no tree.

    Trees labelled ``UNPARSED`` are none. Raises ``InputError`` for a sentence without a tree among ``trees``, for a
    word of the text that brackets cannot hold, and if less than a tenth of the trees stands in the text, on less than a
    tenth of its lines: any two texts share a few sentences.
    """
    trees = [one for one in trees if one.tree is None or one.tree.label != UNPARSED]
    aligner = _Aligner(trees, lines)
    aligner.place_whole_lines()
    aligner.place_in_lines()
    report = aligner.report()
    is_part = report.trees_used >= _LEAST_SHARE * report.trees or report.lines_with_trees >= _LEAST_SHARE * report.lines
    if not (report.trees_used and is_part):
        remedy = "give the trees of this text's sentences; the text has one sentence or paragraph a line"
        found = f"{report.trees_used:,} of {report.trees:,} trees are found, on {report.lines_with_trees:,} of"
        raise InputError(f"{found} {report.lines:,} lines", where=lines[0].source if lines else None, remedy=remedy)
    aligned = [
        _with_tree(line, placed, trees) if line.words else line
        for line, placed in zip(lines, aligner.placed, strict=True)
    ]
    return aligned, report


class _Aligner:
    """The places of trees in the lines, as far as they are found."""

    def __init__(self, trees: Sequence[Sentence], lines: Sequence[Sentence]) -> None:
        """Work out what to expect of each tree."""
        self.trees, self.lines = trees, lines
        spelling = Spelling({word for line in lines for word in line.words})
        self.words = [tuple(map(spelling.compared, line.words)) for line in lines]
        self.forms = [tuple(map(spelling.compared, sentence.words)) for sentence in trees]
        self.expected = [_expected(sentence, spelling) for sentence in trees]
        self.keys = [tuple(form for forms in expected for form in forms) for expected in self.expected]
        self.is_free = [bool(key) for key in self.keys]
        self.placed: list[list[Placed]] = [[] for _ in lines]

    def place_whole_lines(self) -> None:
        """Give lines the trees that are expected to be spelled as they are.

        Where a line has one tree, and this one line, they belong together. Others stand where their neighbours are.
        """
        by_key: dict[tuple[str, ...], tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
        for index, key in enumerate(self.keys):
            if key:
                by_key[key][0].append(index)
        for number, words in enumerate(self.words):
            if words in by_key:
                by_key[words][1].append(number)
        doubtful = []
        for trees, lines in by_key.values():
            if len(trees) == len(lines):
                for tree, line in zip(trees, lines, strict=True):
                    self._place(line, self._as_expected(tree, 0))
            elif lines:
                doubtful.append((trees, lines))
        near = self._trees_near()
        for trees, lines in doubtful:
            for tree, line in _pairs(trees, lines, near):
                self._place(line, self._as_expected(tree, 0))

    def _trees_near(self) -> list[int]:
        """For every line, the tree that would follow if all lines since the last one with a tree had one."""
        near, tree = [], -1
        for placed in self.placed:
            tree = placed[0].tree if placed else tree + 1
            near.append(tree)
        return near

    def _as_expected(self, tree: int, start: int) -> Placed:
        return Placed(tree, start, tuple(map(len, self.expected[tree])), is_expected=True)

    def _place(self, line: int, placed: Placed) -> None:
        self.placed[line].append(placed)
        self.is_free[placed.tree] = False

    def place_in_lines(self) -> None:
        """Look for trees within the other lines, from left to right, first of all the one after the last."""
        starts: dict[tuple[str, ...], list[int]] = defaultdict(list)
        for index, key in enumerate(self.keys):
            if self.is_free[index] and len(key) >= _START:
                starts[key[:_START]].append(index)
        last = -1
        for line, placed in enumerate(self.placed):
            if not placed:
                self._fill(line, starts, last)
            last = placed[-1].tree if placed else last

    def _fill(self, line: int, starts: dict[tuple[str, ...], list[int]], last: int) -> None:
        words, start, is_boundary = self.words[line], 0, True
        while start < len(words):
            found = self._begins(words, start, starts, last) if is_boundary else None
            if found is not None:
                self._place(line, found)
                last = found.tree
            start = start + 1 if found is None else found.end
            is_boundary = found is not None or is_sign(words[start - 1])

    def _begins(
        self, words: Sequence[str], start: int, starts: dict[tuple[str, ...], list[int]], last: int
    ) -> Placed | None:
        """The tree of the words from ``start`` on: the nearest that is expected to be spelled so, else the best fit."""
        candidates = [*self._next_free(last, 1), *starts.get(tuple(words[start : start + _START]), ())]
        exact = [
            self._as_expected(tree, start)
            for tree in candidates
            if self.is_free[tree] and tuple(words[start : start + len(self.keys[tree])]) == self.keys[tree]
        ]
        ending = [placed for placed in exact if self._ends(words, placed)]
        if ending:
            return min(ending, key=lambda placed: abs(placed.tree - last - 1))
        fits = [
            (fit.cost, Placed(tree, start, fit.counts, is_expected=False))
            for tree in self._next_free(last, _NEAR)
            if (fit := fit_words(self.forms[tree], self.expected[tree], words, start)) is not None
        ]
        return min((item for item in fits if self._ends(words, item[1])), default=(0, None))[1]

    def _ends(self, words: Sequence[str], placed: Placed) -> bool:
        """Tell whether a sentence may end where the tree does: with the line, a sign, or where the next tree begins."""
        if placed.end == len(words) or is_sign(words[placed.end - 1]):
            return placed.end > placed.start
        after = self.keys[placed.tree + 1][:_START] if placed.tree + 1 < len(self.keys) else ()
        return bool(after) and tuple(words[placed.end : placed.end + len(after)]) == after

    def _next_free(self, last: int, most: int) -> list[int]:
        """The free ones among the trees that come next."""
        return [tree for tree in range(last + 1, min(last + 1 + most, len(self.trees))) if self.is_free[tree]]

    def report(self) -> AlignmentReport:
        """Count."""
        whole = [placed for placed, line in zip(self.placed, self.lines, strict=True) if _covers(placed, line)]
        used = [one for placed in self.placed for one in placed]
        return AlignmentReport(
            trees=len(self.trees),
            trees_used=len(used),
            trees_spelled_otherwise=sum(not one.is_expected for one in used),
            lines=sum(bool(line.words) for line in self.lines),
            lines_of_one_tree=sum(len(placed) == 1 for placed in whole),
            lines_of_several_trees=sum(len(placed) > 1 for placed in whole),
            lines_in_part=sum(map(bool, self.placed)) - len(whole),
            lines_without_tree=sum(
                bool(line.words) and not placed for placed, line in zip(self.placed, self.lines, strict=True)
            ),
            blank_lines=sum(not line.words for line in self.lines),
            words=sum(len(line.words) for line in self.lines),
            words_in_trees=sum(one.end - one.start for one in used),
        )


def _expected(sentence: Sentence, spelling: Spelling) -> list[tuple[str, ...]]:
    if sentence.tree is None:
        raise InputError("a sentence without a tree", where=sentence.where, remedy="give brackets or CoNLL-U")
    tags = sentence.tags or (UNKNOWN_TAG,) * len(sentence.words)
    pairs = zip(sentence.words, tags, strict=True)
    return [spelling.expected(word, None if tag == UNKNOWN_TAG else tag) for word, tag in pairs]


def _pairs(trees: Iterable[int], lines: Iterable[int], near: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Trees and lines that are spelled alike, of which there are not as many: each of the fewer with the nearest."""
    ends = [(tree, tree) for tree in trees], sorted((near[line], line) for line in lines)
    few, many = sorted(ends, key=len)
    for position, one in few:
        index = bisect_left(many, (position,))
        index -= index == len(many) or (index > 0 and position - many[index - 1][0] <= many[index][0] - position)
        other = many.pop(index)[1]
        yield (one, other) if few is ends[0] else (other, one)


def _covers(placed: Sequence[Placed], line: Sentence) -> bool:
    return bool(placed) and sum(one.end - one.start for one in placed) == len(line.words)


def _with_tree(line: Sentence, placed: Sequence[Placed], trees: Sequence[Sentence]) -> Sentence:
    """The line under the trees that are placed on it."""
    bad = next((word for word in line.words if unescape(word) != word), None)
    if bad is not None:
        raise InputError(f"{bad!r}, which brackets cannot hold", where=line.where, remedy="write the bracket itself")
    children: list[Tree | str] = []
    tags: list[str] = []
    for one in placed:
        children += line.words[len(tags) : one.start]
        tags += [UNKNOWN_TAG] * (one.start - len(tags))
        ends = list(accumulate(one.counts, initial=one.start))
        source = trees[one.tree]
        assert source.tree is not None
        tree = replace_words(source.tree, [line.words[start:end] for start, end in pairwise(ends)])
        assert tree is not None
        children.append(tree)
        old_tags = source.tags or (UNKNOWN_TAG,) * len(one.counts)
        tags += [tag for tag, count in zip(old_tags, one.counts, strict=True) for _ in range(count)]
    children += line.words[len(tags) :]
    tags += [UNKNOWN_TAG] * (len(line.words) - len(tags))
    if len(children) == 1 and isinstance(children[0], Tree):
        top = children[0]
    else:
        top = Tree(SEVERAL if placed else UNPARSED, children)
    return replace(line, tree=top, tags=tuple(tags))
