"""The streaming reader behind :func:`treelm.trees.brackets.iter_trees`: a stack of open brackets, fed line by line."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple, TypeAlias

from treelm.errors import InputError
from treelm.trees.transforms import EMPTY_TAG, TOP_LABELS, Normalisation, strip_function, unescape
from treelm.trees.tree import Tree

MAX_PATIENCE: Final = 10_000
"""Lines that the first tree of a file may go on after a line that looks like the start of another tree."""

MAX_ENTRIES: Final = 100_000
"""Words that the table of what they become holds before it starts afresh."""

# Possessive quantifiers: nothing is looked at twice. Whitespace is ASCII only: a no-break space is part of a word.
TOKEN = re.compile(
    r"\(\s*+([^\s()]*+)(?:\s++([^\s()]++)\s*+\))?+"  # an opening bracket with its label, or a whole ``(label word)``
    r"|(\)++)"
    r"|([^\s()]++)",
    re.ASCII,
)
_MARGIN = re.compile(r"[ \t\r\f\v]*+(?=\()")
_READ_ON = "or leave it out with on_error = skip"


class BracketedTree(NamedTuple):
    """A tree as it was read, the tags of its words (None when the file has none), and the line where it starts."""

    tree: Tree
    tags: tuple[str, ...] | None
    line: int


class _Table(dict[str, str]):
    """A table of what labels or words become; each is worked out once while the table is small."""

    def __init__(self, change: Callable[[str], str]) -> None:
        self._change = change

    def __missing__(self, text: str) -> str:
        if len(self) >= MAX_ENTRIES:
            self.clear()
        self[text] = changed = self._change(text)
        return changed


class _BareWord(str):
    """A word that was not read together with its tag: its bracket is not known to be a tag until it closes."""

    __slots__ = ()


_Open: TypeAlias = tuple[str, list[Tree | str]]  # label and the children so far
_Item: TypeAlias = BracketedTree | InputError


class BracketReader:
    """Reads one source. ``read`` gives trees, and an :class:`InputError` in place of each bad tree."""

    def __init__(self, source: str, *, tagged: bool, normalisation: Normalisation) -> None:
        """Start before the first line of ``source``; ``tagged``: every word has a part-of-speech tag."""
        self._source = source
        self._tagged = tagged
        self._steps = normalisation
        self._labels = _Table(strip_function if normalisation.strip_functions else str)
        self._words = _Table(unescape if normalisation.unescape else str)
        self._empty_tag = EMPTY_TAG if normalisation.drop_empties else None
        self._stack: list[_Open] = []
        self._tags: list[str] = []
        self._start = 0  # line of the open tree
        self._num_bare_words = 0  # in open brackets
        self._emptied: list[Tree | str] | None = None  # children of which the last was dropped
        self._problem: InputError | None = None  # of the open tree, reported when it closes
        self._skipping = False  # until the next line that begins a tree
        self._margin: int | None = None  # column of the first tree
        self._free_layout: bool | None = None  # whether trees have lines at the margin inside; None: not known yet
        self._doubtful: list[tuple[int, str]] = []  # from a line in the first tree on that may begin another

    def read(self, lines: Iterable[str], first_line: int = 1) -> Iterator[_Item]:
        """Trees and errors in the order of the lines, which are numbered from ``first_line`` on.

        Each call reads by itself: the layout of what was read before plays no part.
        """
        self._margin, self._free_layout, self._skipping = None, None, False
        yield from self._read(enumerate(lines, first_line))
        while self._stack:
            yield from self._close_and_retry("before the end of the file")

    def _read(self, numbered_lines: Iterable[tuple[int, str]]) -> Iterator[_Item]:
        for number, line in numbered_lines:
            if number == 1:
                line = line.removeprefix("\ufeff")
            at_margin = (self._stack or self._skipping) and self._at_margin(line)
            if at_margin and self._stack and self._free_layout is False:
                yield self._unclosed(f"before the next tree, at line {number}")
            self._skipping = self._skipping and not at_margin
            if self._doubtful or (at_margin and self._stack and self._free_layout is None):
                self._doubtful.append((number, line))
            if not self._skipping:
                yield from self._feed(line, number)
            if len(self._doubtful) > MAX_PATIENCE:
                yield from self._close_and_retry(f"within {MAX_PATIENCE} lines")

    def _at_margin(self, line: str) -> bool:
        """Whether the line starts with a bracket no further right than the first tree of the file."""
        margin = _MARGIN.match(line)
        return margin is not None and margin.end() <= (self._margin or 0)

    def _close_and_retry(self, where: str) -> Iterator[_Item]:
        """Give up the open tree; if lines in it looked like trees, they are."""
        again, self._doubtful, self._free_layout = self._doubtful, [], False
        yield self._unclosed(where)
        yield from self._read(again)

    def _unclosed(self, where: str) -> InputError:
        missing = f"{len(self._stack)} closing bracket{'s' * (len(self._stack) > 1)}"
        self._reset()
        return self._error(f"this tree lacks {missing} {where}", "add what is missing", self._start)

    def _error(self, found: str, remedy: str, line: int) -> InputError:
        return InputError(found, where=f"{self._source}:{line}", remedy=f"{remedy}, {_READ_ON}")

    def _reset(self) -> None:
        self._stack.clear()
        self._tags.clear()
        self._num_bare_words = 0
        self._problem = None

    def _feed(self, line: str, number: int) -> list[_Item]:
        """Read one line; gives the trees that end in it."""
        if self._margin is None and (margin := _MARGIN.match(line)):
            self._margin = margin.end()
        done: list[_Item] = []
        stack, words, tags, in_place = self._stack, self._words, self._tags, self._tagged and self._steps.drop_tags
        for label, word, closes, bare in TOKEN.findall(line):
            if word and in_place and stack and label != self._empty_tag:  # a short way for nearly all words
                stack[-1][1].append(words[word])
                tags.append(label)
            elif closes:
                for _ in closes:
                    if not stack:
                        return self._debris(done, "a closing bracket that closes nothing", "remove it", number)
                    self._close(done, number)
            elif bare:
                if not stack:
                    return self._debris(done, f"{bare!r} outside a tree", "put it inside brackets", number)
                self._add_bare_word(bare)
            else:
                if not stack:
                    self._start = number
                stack.append((label, []))
                if word:
                    self._add_bare_word(word)
                    self._close(done, number)
        return done

    def _debris(self, done: list[_Item], found: str, remedy: str, number: int) -> list[_Item]:
        """Leave out the rest of the line, and the tree before on the same line: what stands here may belong to it."""
        self._skipping = True
        return [*done[:-1], self._error(found, remedy, number)]

    def _add_bare_word(self, word: str) -> None:
        label, children = self._stack[-1]
        if not label and not children and self._emptied is not children:
            self._stack[-1] = (word, children)  # the label stands on the line below its bracket
        elif self._tagged:
            children.append(_BareWord(word))
            self._num_bare_words += 1
        else:
            children.append(self._words[word])

    def _close(self, done: list[_Item], number: int) -> None:
        """Close the innermost bracket."""
        label, children = self._stack.pop()
        node: Tree | str | None = None
        if self._num_bare_words and any(type(child) is _BareWord for child in children):
            node = self._tagged_word(label, children, number)
        elif children:
            node = Tree(self._labels[label], children)
        elif self._emptied is not children:
            self._note(f"bracket ({label}) holds no word", "remove it or give it a word", number)
        if not self._stack:
            done.append(self._finish(node))
        elif node is None:
            self._emptied = self._stack[-1][1]
        else:
            self._stack[-1][1].append(node)

    def _tagged_word(self, tag: str, children: list[Tree | str], number: int) -> Tree | str | None:
        """The node of the tree that a tag over a word becomes; None when it is dropped."""
        bare_words = [child for child in children if type(child) is _BareWord]
        self._num_bare_words -= len(bare_words)
        if len(children) > 1:
            remedy = 'give it a bracket with a tag, or read with tags="absent" when no word has a tag'
            self._note(f"word {str(bare_words[0])!r} has siblings instead of a tag of its own", remedy, number)
        elif tag == self._empty_tag:
            return None
        self._tags.append(tag)
        word = self._words[str(bare_words[0])]
        return word if self._steps.drop_tags else Tree(tag, [word])

    def _note(self, found: str, remedy: str, number: int) -> None:
        """Keep the first problem of a tree until it closes."""
        self._problem = self._problem or self._error(found, remedy, number)

    def _finish(self, node: Tree | str | None) -> _Item:
        """The record of the tree that has just closed, or its error."""
        if self._free_layout is None:
            self._free_layout = bool(self._doubtful)
        self._doubtful = []
        problem, tags = self._problem, tuple(self._tags) if self._tagged else None
        if problem is None and node is None:
            problem = self._error("a tree without words", "remove it or give it words", self._start)
        self._reset()
        if problem is not None or node is None:
            assert problem is not None
            return problem
        return BracketedTree(self._without_outer_bracket(node), tags, self._start)

    def _without_outer_bracket(self, node: Tree | str) -> Tree:
        if isinstance(node, str):
            return Tree("ROOT", [node])
        if not self._steps.unwrap:
            return node
        if self._is_tag(node):
            return Tree("ROOT", [node])
        child = node.children[0]
        unary = node.label in TOP_LABELS and len(node.children) == 1
        if unary and isinstance(child, Tree) and not self._is_tag(child):
            return child
        return node if node.label else Tree("ROOT", node.children)

    def _is_tag(self, node: Tree) -> bool:
        return self._tagged and not self._steps.drop_tags and isinstance(node.children[0], str)
