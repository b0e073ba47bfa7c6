"""Streaming reader of trees in brackets, fed line by line, and the normal form that it gives labels and words."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

from treelm.errors import InputError, without_errors

TOP_LABELS: Final = frozenset({"", "ROOT", "TOP"})
"""Labels of outer brackets, which hold a tree and are no constituent."""
EMPTY_TAG: Final = "-NONE-"
"""Tag of traces and other words without sound."""
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
_ESCAPES = {"-LRB-": "(", "-RRB-": ")", "-LSB-": "[", "-RSB-": "]", "-LCB-": "{", "-RCB-": "}"}
_ESCAPED = re.compile("|".join(_ESCAPES))
_LABEL = re.compile(r"-.*|.[^-=]*|", re.DOTALL)
_ESCAPED_BY = {"(": "-LRB-", ")": "-RRB-"}
_BRACKET = re.compile(r"[()]")
_MARGIN = re.compile(r"[ \t\r\f\v]*+(?=\()")
_READ_ON = "or leave it out with on_error = skip"


@dataclass(frozen=True, kw_only=True, slots=True)
class Normalisation:
    """The steps that the reader takes with a tree, in this order; each can be turned off.

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


def escape(word: str) -> str:
    """The word with round brackets written ``-LRB-`` and ``-RRB-``."""
    return _BRACKET.sub(lambda match: _ESCAPED_BY[match.group()], word)


NORMAL_FORM = Normalisation()
"""Every step of the reader's normal form."""
AS_WRITTEN = Normalisation(strip_functions=False, drop_empties=False, unwrap=False, drop_tags=False)
"""Changes nothing but escapes of brackets."""


class Constituent(Protocol):
    """A label over children: all that the reader knows of the trees it builds."""

    @property
    def label(self) -> str:
        """The label."""

    @property
    def children(self) -> Sequence[Any]:
        """Constituents and words."""


T = TypeVar("T", bound=Constituent)


class BracketedTree(NamedTuple, Generic[T]):
    """A tree as it was read, the tags of its words (None when the file has none), and the line where it starts."""

    tree: T
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


class BracketReader(Generic[T]):
    """Reads one source. ``read`` gives trees, and an ``InputError`` in place of each bad tree."""

    def __init__(
        self, build: Callable[[str, Sequence[T | str]], T], source: str, *, tagged: bool, normalisation: Normalisation
    ) -> None:
        """Start before the first line of ``source``; ``tagged``: every word has a part-of-speech tag."""
        self._build = build
        self._source = source
        self._tagged = tagged
        self._steps = normalisation
        self._labels = _Table(strip_function if normalisation.strip_functions else str)
        self._words = _Table(unescape if normalisation.unescape else str)
        self._empty_tag = EMPTY_TAG if normalisation.drop_empties else None
        self._stack: list[tuple[str, list[T | str]]] = []
        self._tags: list[str] = []
        self._start = 0  # line of the open tree
        self._num_bare_words = 0  # in open brackets
        self._emptied: list[T | str] | None = None  # children of which the last was dropped
        self._problem: InputError | None = None  # of the open tree, reported when it closes
        self._skipping = False  # until the next line that begins a tree
        self._margin: int | None = None  # column of the first tree
        self._free_layout: bool | None = None  # whether trees have lines at the margin inside; None: not known yet
        self._doubtful: list[tuple[int, str]] = []  # from a line in the first tree on that may begin another

    def read(self, lines: Iterable[str], first_line: int = 1) -> Iterator[BracketedTree[T] | InputError]:
        """Trees and errors in the order of the lines, which are numbered from ``first_line`` on.

        Each call reads by itself: the layout of what was read before plays no part.
        """
        self._margin, self._free_layout, self._skipping = None, None, False
        yield from self._read(enumerate(lines, first_line))
        while self._stack:
            yield from self._close_and_retry("before the end of the file")

    def _read(self, numbered_lines: Iterable[tuple[int, str]]) -> Iterator[BracketedTree[T] | InputError]:
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
        """True if the line starts with a bracket no further right than the first tree of the file."""
        margin = _MARGIN.match(line)
        return margin is not None and margin.end() <= (self._margin or 0)

    def _close_and_retry(self, where: str) -> Iterator[BracketedTree[T] | InputError]:
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

    def _feed(self, line: str, number: int) -> list[BracketedTree[T] | InputError]:
        """Read one line; gives the trees that end in it."""
        if self._margin is None and (margin := _MARGIN.match(line)):
            self._margin = margin.end()
        done: list[BracketedTree[T] | InputError] = []
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

    def _debris(
        self, done: list[BracketedTree[T] | InputError], found: str, remedy: str, number: int
    ) -> list[BracketedTree[T] | InputError]:
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

    def _close(self, done: list[BracketedTree[T] | InputError], number: int) -> None:
        """Close the innermost bracket."""
        label, children = self._stack.pop()
        node: T | str | None = None
        if self._num_bare_words and any(type(child) is _BareWord for child in children):
            node = self._tagged_word(label, children, number)
        elif children:
            node = self._build(self._labels[label], children)
        elif self._emptied is not children:
            self._note(f"bracket ({label}) holds no word", "remove it or give it a word", number)
        if not self._stack:
            done.append(self._finish(node))
        elif node is None:
            self._emptied = self._stack[-1][1]
        else:
            self._stack[-1][1].append(node)

    def _tagged_word(self, tag: str, children: list[T | str], number: int) -> T | str | None:
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
        return word if self._steps.drop_tags else self._build(tag, [word])

    def _note(self, found: str, remedy: str, number: int) -> None:
        """Keep the first problem of a tree until it closes."""
        self._problem = self._problem or self._error(found, remedy, number)

    def _finish(self, node: T | str | None) -> BracketedTree[T] | InputError:
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

    def _without_outer_bracket(self, node: T | str) -> T:
        if isinstance(node, str):
            return self._build("ROOT", [node])
        if not self._steps.unwrap:
            return node
        if self._is_tag(node):
            return self._build("ROOT", [node])
        child: T | str = node.children[0]
        unary = node.label in TOP_LABELS and len(node.children) == 1
        if unary and not isinstance(child, str) and not self._is_tag(child):
            return child
        return node if node.label else self._build("ROOT", node.children)

    def _is_tag(self, node: T) -> bool:
        return self._tagged and not self._steps.drop_tags and isinstance(node.children[0], str)


def only_tree(items: Iterable[BracketedTree[T] | InputError]) -> T:
    """The one tree among what a reader gives. Raises ``InputError`` otherwise."""
    found: list[BracketedTree[T]] = list(without_errors(items, None))
    if len(found) != 1:
        raise InputError(f"{len(found)} trees where one was expected", where="<text>", remedy="give exactly one tree")
    return found[0].tree


def read_tree(build: Callable[[str, Sequence[T | str]], T], text: str) -> T:
    """The one tree in a text, words without tags, nothing changed but escapes of brackets."""
    reader = BracketReader(build, "<text>", tagged=False, normalisation=AS_WRITTEN)
    return only_tree(reader.read(text.split("\n")))
