"""Sentences from files: brackets, CoNLL-U, plain text; streamed, gzip too."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import IO, Literal, get_args

from treelm.corpora.lines import Format, Stretch, cut, format_of, numbered_lines, only_text
from treelm.corpora.sentence import Preprocessing, Sentence, preprocess
from treelm.corpora.tokens import words_of
from treelm.errors import InputError, OnError, check_choice, check_on_error, without_errors
from treelm.io.files import decoded, name_of, open_bytes
from treelm.trees.bracket_reader import BracketedTree, BracketReader, Normalisation
from treelm.trees.dependencies import iter_dependencies, to_constituency
from treelm.trees.tree import Tree

Tags = Literal["present", "absent"]
DependencyLabels = Literal["plain", "upos"]


@dataclass(frozen=True, kw_only=True)
class ReadOptions:
    """Options of reading files."""

    format: Format | Literal["auto"] = "auto"
    """Format of the files; by default their names tell."""
    tags: Tags = "present"
    """Presence of a part-of-speech tag over each word of bracket files."""
    strip_functions: bool = True
    """Cut function tags off labels: NP-SBJ is read as NP."""
    dependency_labels: DependencyLabels = "plain"
    """Labels of constituents from CoNLL-U: X, or the part of speech of the head and P, such as NOUNP."""
    empty_lines: bool = False
    """Take blank lines of text for sentences without words, as WikiText's counts do, and those between trees; else they
    are left out."""
    preprocess: Preprocessing = "none"
    """``prpn``: words as in experiments on unsupervised parsing: lower case, digits as N, no punctuation or currency
    signs (by their tags). Its vocabulary has min_count = 3. ``mikolov``: words as in Mikolov's Penn Treebank: lower
    case, numbers as N, no punctuation, no sentence of 100 tokens or more. Its vocabulary has max_size = 9998."""

    def __post_init__(self) -> None:
        """Raise InputError for a value that cannot be."""
        check_choice("format", self.format, ("auto", *get_args(Format)))
        check_choice("tags", self.tags, get_args(Tags))
        check_choice("dependency_labels", self.dependency_labels, get_args(DependencyLabels))
        check_choice("preprocess", self.preprocess, get_args(Preprocessing))

    def format_for(self, path: str) -> Format:
        """The format to read a file in."""
        return format_of(path) if self.format == "auto" else self.format


def read_sentences(
    source: str | Path | IO[bytes],
    *,
    format: Format | Literal["auto"] = "auto",
    tags: Tags = "present",
    strip_functions: bool = True,
    dependency_labels: DependencyLabels = "plain",
    empty_lines: bool = False,
    preprocess: Preprocessing = "none",
    is_guess: bool = False,
    on_error: OnError = "raise",
    skipped: list[InputError] | None = None,
) -> Iterator[Sentence]:
    """Read the sentences of a file, of ``-`` (standard input) or of a binary stream, one at a time.

    Words are UTF-8, split on whitespace as ``corpora.tokens`` says. A byte order mark, CRLF and gzip are accepted.
    A bad sentence raises InputError with ``file:line``; with ``on_error="skip"`` it is left out and its error is in
    ``skipped``, and no other sentence suffers. A file without sentences raises InputError, and so does one that nobody
    has said to be text (``is_guess``, or a name such as x.txt with ``format="auto"``) and that begins like trees.
    """
    check_on_error(on_error, skipped)
    options = ReadOptions(
        format=format,
        tags=tags,
        strip_functions=strip_functions,
        dependency_labels=dependency_labels,
        empty_lines=empty_lines,
        preprocess=preprocess,
    )
    return _sentences(source, options, skipped if on_error == "skip" else None, is_guess=is_guess)


def _sentences(
    source: str | Path | IO[bytes], options: ReadOptions, skipped: list[InputError] | None, *, is_guess: bool
) -> Iterator[Sentence]:
    name = name_of(source)
    format = options.format_for(str(source) if isinstance(source, str | Path) else name)
    parser = StretchParser(name, format, options)
    found_any = False
    with open_bytes(source) as stream:
        damage: list[InputError] = []
        lines = numbered_lines(stream, name=name, damage=None if skipped is None else damage)
        if format == "text" and (is_guess or options.format == "auto"):
            lines = only_text(lines, name=name)
        stretches = cut(lines, format, blank_lines=options.empty_lines)
        for sentence in without_errors(chain.from_iterable(map(parser.parse, stretches)), skipped):
            found_any = True
            yield sentence
    if skipped is not None:
        skipped.extend(damage)
    if not found_any:
        raise no_sentences(name, skipped or [])


def no_sentences(name: str, skipped: list[InputError]) -> InputError:
    """The error of a file that gave nothing."""
    if skipped:
        first = skipped[0]
        return InputError(
            f"none of its {len(skipped)} sentences can be read (the first: {first.found})",
            where=name,
            remedy=first.remedy,
        )
    return InputError("no sentences", where=name, remedy="give a file with at least one sentence")


class StretchParser:
    """Reader of the stretches of one source, each by itself: what it gives does not depend on those before."""

    def __init__(self, name: str, format: Format, options: ReadOptions) -> None:
        """Read by the options; messages and sentences call the source ``name``."""
        self._name = name
        self._options = options
        self._parse = {"brackets": self._brackets, "conllu": self._conllu, "text": self._text}[format]
        self._reader = BracketReader(
            Tree,
            name,
            tagged=options.tags == "present",
            normalisation=Normalisation(strip_functions=options.strip_functions),
        )

    def parse(self, stretch: Stretch) -> Iterator[Sentence | InputError]:
        """The sentences of a stretch, with an error in place of each bad one."""
        try:
            text = decoded(stretch.content, name=self._name, line=stretch.line)
        except InputError as error:
            yield error
        else:
            found = self._parse(stretch, text)
            how = self._options.preprocess
            yield from found if how == "none" else _preprocessed(found, how)

    def _text(self, stretch: Stretch, text: str) -> Iterator[Sentence | InputError]:
        words = words_of(text)
        if words or self._options.empty_lines:
            line = text.rstrip("\r\n")
            yield Sentence(
                words=words,
                text=line,
                identifier=str(stretch.line),
                source=self._name,
                line=stretch.line,
                document=stretch.document,
            )

    def _brackets(self, stretch: Stretch, text: str) -> Iterator[Sentence | InputError]:
        if self._options.empty_lines and not text.strip():
            yield Sentence(words=(), identifier=str(stretch.line), source=self._name, line=stretch.line)
            return
        for item in self._reader.read(text.split("\n"), first_line=stretch.line):
            if isinstance(item, BracketedTree):
                words = tuple(item.tree.words())
                yield Sentence(
                    words=words,
                    tree=item.tree,
                    tags=item.tags,
                    identifier=str(item.line),
                    source=self._name,
                    line=item.line,
                    document=stretch.document,
                )
            else:
                yield item

    def _conllu(self, stretch: Stretch, text: str) -> Iterator[Sentence | InputError]:
        for found in iter_dependencies(text.split("\n"), source=self._name, first_line=stretch.line):
            if isinstance(found, InputError):
                yield found
                continue
            yield Sentence(
                words=found.words,
                tree=to_constituency(found, labels=self._options.dependency_labels),
                tags=found.tags if any(tag != "_" for tag in found.tags) else None,
                text=found.text,
                identifier=found.identifier or str(found.line),
                source=self._name,
                line=found.line,
                document=stretch.document,
            )


def _preprocessed(items: Iterator[Sentence | InputError], how: Preprocessing) -> Iterator[Sentence | InputError]:
    """Sentences that keep a word, as preprocessing leaves them, and those that had none."""
    for item in items:
        try:
            kept = preprocess(item, how) if isinstance(item, Sentence) and item.words else item
        except InputError as error:
            kept = error
        if kept is not None:
            yield kept
