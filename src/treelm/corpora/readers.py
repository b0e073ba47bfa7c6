"""Sentences from files: brackets, CoNLL-U, plain text; streamed, gzip too."""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import IO, Any, Literal

from treelm.configs import configuration
from treelm.corpora.lines import Format, Stretch, format_of, stretches
from treelm.corpora.options import TreebankOptions
from treelm.corpora.sentence import Preprocessing, Sentence, preprocess
from treelm.corpora.tokens import words_of
from treelm.errors import InputError
from treelm.io.files import decoded, name_of, open_bytes
from treelm.trees.brackets import read_trees
from treelm.trees.dependencies import read_dependencies, to_constituency
from treelm.trees.treebanks import AUTO, PENN, TRACE_LIKE

_logger = logging.getLogger(__name__)
Tags = Literal["present", "absent"]
_LINES_WITH_SIGNS = 1000  # of text that is not one sentence a line
_PARTED = re.compile(r"[A-Z$]+([/:|#*.+~^@])[A-Za-z.+]+")  # VP/HD, of TIGER and NEGRA
_FINAL = ".?!"  # marks that end sentences
DependencyLabels = Literal["plain", "upos"]


@configuration
class ReadOptions(TreebankOptions):
    """Options of reading files."""

    format: Literal["auto", Format] = "auto"
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

    def format_for(self, name: str) -> Format:
        """The format to read a file of this name in. Raises ``InputError`` if neither the options nor it tell one."""
        return format_of(name) if self.format == "auto" else self.format


_DEFAULT = ReadOptions()


def read_sentences(
    source: str | Path | IO[bytes],
    options: ReadOptions = _DEFAULT,
    *,
    skipped: list[InputError] | None = None,
    **settings: Any,
) -> Iterator[Sentence]:
    """Read the sentences of a file, of ``-`` (standard input) or of a binary stream, one at a time.

    ``settings`` are fields of ``ReadOptions`` and replace those of ``options``. A byte order mark, CRLF, gzip and xz
    are accepted. A sentence that cannot be read raises ``InputError`` with ``file:line``, unless there is a list
    ``skipped``: then the sentence is left out and its error is appended there. A file without sentences raises
    ``InputError``, and so does one of ``format="auto"`` that is read as text and begins like trees or like a table.
    """
    return _read(source, replace(options, **settings), skipped)


def _read(source: str | Path | IO[bytes], options: ReadOptions, skipped: list[InputError] | None) -> Iterator[Sentence]:
    name, num_before = name_of(source), len(skipped or ())
    damage, number, left_out = list[InputError](), 0, Counter[str]()
    format, treebank, first = options.format_for(name), PENN, list[Sentence]()
    with open_bytes(source) as stream:
        kept = None if skipped is None else damage
        for piece in stretches(stream, name, options, damage=kept, left_out=left_out):
            treebank = piece.treebank
            for item in read_stretch(piece, options, left_out):
                if isinstance(item, Sentence):
                    number += 1
                    if item.words and len(first) < _LINES_WITH_SIGNS:
                        first.append(item)
                    yield item
                elif skipped is None:
                    raise item
                else:
                    skipped.append(item)
    if skipped is not None:
        skipped += damage
    if not number:
        raise no_sentences(name, (skipped or [])[num_before:])
    if options.treebank == AUTO and treebank is not PENN and left_out:
        listed = ", ".join(f"{what} {count:,}" for what, count in left_out.most_common())
        note_of_signs = "%s: has signs of %s: left out %s; treebank = penn would keep them as words"
        _logger.warning(note_of_signs, name, treebank.name, listed)
    note = {"text": _note_of_text, "brackets": _note_of_trees}.get(format)
    is_default = options.treebank == AUTO and options.strip_functions and not options.label_separators
    if note and is_default and (told := note(first)):
        _logger.warning("%s:%s", name, told)


def _note_of_trees(first: list[Sentence]) -> str:
    """What is said of the first trees with words that look like traces, or with labels that seem to have functions."""
    if number := sum(TRACE_LIKE.fullmatch(word) is not None for one in first for word in one.words):
        return f" {number:,} words look like traces, such as *T*-1: treebank = ppche leaves them out, penn keeps them"
    labels = [node.label for one in first if one.tree is not None for node in one.tree.constituents()]
    parted = [found for label in labels if (found := _PARTED.fullmatch(label))]
    if not parted or 10 * len(parted) < len(labels):
        return ""
    said = f"{len(parted)} of {len(labels)} labels seem to have a function, such as {parted[0][0]}"
    return f' {said}: label_separators = "{parted[0][1]}-=" cuts it off'


def _note_of_text(first: list[Sentence]) -> str:
    """What is said of text that seems not to be one sentence a line, by its first lines that are not blank."""
    neighbours = list(pairwise(first))
    if len(neighbours) > 2 and all(len(one.words) == 1 for one in first):
        if any(after.line > before.line + 1 for before, after in neighbours):
            remedy = "treelm surprisal reads one word a line with --layout words"
            return f"{first[0].line}: each line has one word and is read as a sentence: {remedy}"
        return ""
    broken = [  # within a sentence
        before.line
        for before, after in neighbours
        if after.line == before.line + 1 and before.words[-1][-1] not in _FINAL and after.words[0][0].islower()
    ]
    has_ends_inside = any(
        word[-1] in _FINAL and after[0].isupper() and after[1:].islower()
        for one in first
        for word, after in pairwise(one.words)
    )
    if broken and has_ends_inside and 3 * len(broken) >= len(neighbours):
        remedy = "put each paragraph on a line of its own and give treelm surprisal --split-sentences en"
        return f"{broken[0]}: lines seem to end within sentences, but each is read as one: {remedy}"
    return ""


def no_sentences(name: str, skipped: list[InputError]) -> InputError:
    """The error of a file that gave nothing."""
    if not skipped:
        return InputError("no sentences", where=name, remedy="give a file with at least one sentence")
    found = f"none of its {len(skipped)} sentences can be read (the first: {skipped[0].found})"
    return InputError(found, where=name, remedy=skipped[0].remedy)


def read_stretch(
    stretch: Stretch, options: ReadOptions, left_out: Counter[str] | None = None
) -> Iterator[Sentence | InputError]:
    """The sentences of a stretch, with an error in place of each bad one.

    The result does not depend on other stretches. ``left_out`` counts annotation that is left out, by its kind.
    """
    name, format = stretch.source, stretch.format

    def sentence(line: int = stretch.line, identifier: str | None = None, **parts: Any) -> Sentence:
        own = identifier or str(line)
        return Sentence(identifier=own, line=line, source=name, document=stretch.document, **parts)

    if not stretch.content.strip():  # at once, as there may be a million of them
        if options.empty_lines:
            yield sentence(words=(), text=stretch.content.decode() if format == "text" else None)
        return
    items: list[Sentence | InputError] = []
    try:
        text = decoded(stretch.content, name=name, line=stretch.line, has_option=True)
        if format == "conllu":
            found = read_dependencies(text, source=name, first_line=stretch.line)
            if found is not None:
                pairs = zip(found.tags, found.universal_tags, strict=True)  # XPOS, else UPOS
                tags = tuple(universal if tag == "_" else tag for tag, universal in pairs)
                parts: dict[str, Any] = {
                    "words": found.words,
                    "tags": tags if {*tags} != {"_"} else None,
                    "text": found.text,
                }
                tree = to_constituency(found, labels=options.dependency_labels)
                items.append(sentence(identifier=found.identifier, tree=tree, **parts))
        elif format == "brackets":
            read = read_trees(
                text,
                source=name,
                first_line=stretch.line,
                has_tags=options.tags == "present",
                treebank=stretch.treebank,
                separators=(options.label_separators or None) if options.strip_functions else "",
                left_out=left_out,
            )
            on_line = Counter[int]()  # trees, which need names of their own
            for one in read:
                if isinstance(one, InputError):
                    items.append(one)
                    continue
                on_line[one.line] += 1
                own_name = f"{one.line}.{on_line[one.line]}" if on_line[one.line] > 1 else None
                words = tuple(one.tree.words())
                items.append(sentence(one.line, own_name, words=words, tree=one.tree, tags=one.tags))
        else:
            items.append(sentence(words=words_of(text), text=text.rstrip("\r\n")))
    except InputError as error:
        items.append(error)
    if options.preprocess == "none":
        yield from items
        return
    for item in items:
        try:
            kept = preprocess(item, options.preprocess) if isinstance(item, Sentence) and item.words else item
        except InputError as error:
            kept = error
        if kept is not None:
            yield kept
