"""Reading bracket files the way a scorer must: tagged words, empty trees, and bad lines that lose nothing else."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from treelm.corpora.inputs import is_gzip, whole_text
from treelm.errors import InputError
from treelm.trees.brackets import UNKNOWN_TAG
from treelm.trees.tree import Span, Tree

_TOKEN = re.compile(r"[()]|[^()\s]+", re.ASCII)  # ASCII white space only: a no-break space is part of a word


@dataclass(frozen=True, kw_only=True)
class Bracketing:
    """A sentence as a scorer sees it: tagged words, and constituents in the order in which they open.

    Spans count all words of the sentence, also those that a scorer deletes; a constituent without words has an empty
    span. ``problem`` says why a line could not be read; then there are no words and no constituents.
    """

    words: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    spans: tuple[Span, ...] = ()
    where: str = ""
    problem: str | None = None

    def with_tags(self, tags: Sequence[str]) -> Bracketing:
        """The same constituents over words that are tagged otherwise."""
        if len(tags) != len(self.words):
            raise ValueError(f"{len(tags)} tags for {len(self.words)} words")
        return Bracketing(words=self.words, tags=tuple(tags), spans=self.spans, where=self.where, problem=self.problem)

    @property
    def has_tags(self) -> bool:
        """Whether any word has a tag that says something."""
        return any(tag != UNKNOWN_TAG for tag in self.tags)


def bracketing_of(tree: Tree, *, tags: Sequence[str] | None = None, where: str = "") -> Bracketing:
    """A tree in memory, whose words have no tags, with the tags that are given (else all unknown)."""
    words = tuple(tree.words())
    unknown = Bracketing(words=words, tags=(UNKNOWN_TAG,) * len(words), spans=tuple(tree.spans()), where=where)
    return unknown if tags is None else unknown.with_tags(tags)


@dataclass
class _Reader:
    """A bracket automaton that never recurses: ``open`` holds the constituents that are not closed yet."""

    tagless: bool
    words: list[str] = field(default_factory=list)
    tags: list[str] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    open: list[int] = field(default_factory=list)

    def read(self, tokens: Sequence[str]) -> str | None:
        """Read all tokens; what is wrong with them, or None."""
        position = 0
        while position < len(tokens):
            if tokens[position] == "(":
                position = self._open(tokens, position + 1)
            elif tokens[position] == ")":
                if not self.open:
                    return "a closing bracket too many"
                self._close()
                position += 1
            elif not (self.tagless and self.open):
                return f"word {tokens[position]!r} has no bracket with its tag"
            else:
                self._add_word(UNKNOWN_TAG, tokens[position])
                position += 1
        return f"{len(self.open)} brackets are not closed" if self.open else None

    def _open(self, tokens: Sequence[str], position: int) -> int:
        label = ""
        if position < len(tokens) and tokens[position] not in "()":
            label, position = tokens[position], position + 1
            following = tokens[position : position + 2]
            if not self.tagless and len(following) == 2 and following[0] not in "()" and following[1] == ")":
                self._add_word(label, following[0])
                return position + 2
        self.open.append(len(self.spans))
        self.spans.append(Span(label, len(self.words), -1))
        return position

    def _close(self) -> None:
        index = self.open.pop()
        self.spans[index] = self.spans[index]._replace(end=len(self.words))

    def _add_word(self, tag: str, word: str) -> None:
        self.words.append(word)
        self.tags.append(tag)


def parse_bracketing(text: str, *, tagless: bool = False, where: str = "") -> Bracketing:
    """Read one sentence; what cannot be read gives a ``Bracketing`` with a ``problem``, not an exception."""
    reader = _Reader(tagless)
    problem = reader.read(_TOKEN.findall(text))
    if problem is not None:
        return Bracketing(where=where, problem=problem)
    return Bracketing(
        words=tuple(reader.words), tags=tuple(reader.tags), spans=tuple(reader.spans), where=where, problem=None
    )


Layout = Literal["auto", "lines", "free"]


def read_bracketings(path: Path, *, tagless: bool = False, layout: Layout = "auto") -> list[Bracketing]:
    """Every sentence of a bracket file (``.gz`` too), for scoring.

    ``layout="lines"``: one sentence a line, an empty line is a sentence that a parser failed on (as in EVALB).
    ``layout="free"``: trees over several lines; empty lines mean nothing. ``"auto"`` takes ``"lines"`` unless the first
    tree goes on after its first line. ``tagless`` reads words without a tag bracket around each.

    Raises ``InputError`` for a file that cannot be read or is empty, and in free layout for brackets that do not match.
    """
    lines = _read_lines(path)
    if layout == "auto":
        layout = "free" if _first_tree_goes_on(lines) else "lines"
    if layout == "free":
        return [parse_bracketing(text, tagless=tagless, where=where) for text, where in _trees(lines, path)]
    return [parse_bracketing(line, tagless=tagless, where=f"{path}:{n}") for n, line in enumerate(lines, start=1)]


def _read_lines(path: Path) -> list[str]:
    try:
        data = path.read_bytes()
        if path.suffix == ".gz" and not is_gzip(data):
            raise OSError("not gzip data, which its name says")
    except OSError as error:
        raise InputError(
            f"cannot read brackets: {error}", where=str(path), remedy="give a readable UTF-8 file"
        ) from error
    text = whole_text(data, name=str(path))
    if not text.strip():
        raise InputError("the file has no trees", where=str(path), remedy="give a file with one tree a line")
    lines = text.split("\n")
    return lines[:-1] if lines[-1] == "" else lines


def _first_tree_goes_on(lines: Iterable[str]) -> bool:
    first = next(line for line in lines if line.strip())
    return first.count("(") > first.count(")")


def _trees(lines: Iterable[str], path: Path) -> Iterator[tuple[str, str]]:
    """The text of every tree of a free layout, with the place where it begins."""
    depth, parts, begun = 0, list[str](), 0
    for number, line in enumerate(lines, start=1):
        for token in _TOKEN.findall(line):
            begun = begun if parts else number
            parts.append(token)
            depth += {"(": 1, ")": -1}.get(token, 0)
            if depth < 0:
                raise InputError("a closing bracket too many", where=f"{path}:{number}", remedy="mend the brackets")
            if depth == 0:
                yield " ".join(parts), f"{path}:{begun}"
                parts = []
    if parts:
        raise InputError(f"{depth} brackets of this tree are not closed", where=f"{path}:{begun}", remedy="close them")
