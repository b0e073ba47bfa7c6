"""Trees in brackets, in and out: ``(S (NP (NNS dogs)) (VP (VBP bark)) (. .))``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

from treelm.errors import InputError, OnError, check_on_error, without_errors
from treelm.trees.bracket_reader import (
    AS_WRITTEN,
    NORMAL_FORM,
    BracketedTree,
    BracketReader,
    Normalisation,
    escape,
    only_tree,
)
from treelm.trees.transforms import UNKNOWN_TAG
from treelm.trees.tree import Tree, bracketed

__all__ = [
    "AS_WRITTEN",
    "NORMAL_FORM",
    "UNKNOWN_TAG",
    "BracketedTree",
    "Normalisation",
    "format_tree",
    "iter_trees",
    "parse_tree",
]

_NOT_IN_LABEL = re.compile(r"[\s()]", re.ASCII)
_BLANK = re.compile(r"\s", re.ASCII)


def iter_trees(
    lines: Iterable[str],
    *,
    source: str = "<text>",
    tags: Literal["present", "absent"] = "present",
    normalisation: Normalisation = NORMAL_FORM,
    on_error: OnError = "raise",
    errors: list[InputError] | None = None,
) -> Iterator[BracketedTree[Tree]]:
    """Read trees from lines: one or many lines a tree, one or many trees a line, in linear time and one at a time.

    ``tags`` says whether each word has a part-of-speech tag. Bad trees raise ``InputError`` with ``source:line``;
    with ``on_error="skip"`` they are left out and their errors appended to ``errors``. Nothing is read from no lines.

    A line that starts with ``(``, no further right than the file's first tree, begins a new tree (unless the first tree
    itself has such lines inside), so that a bracket missing in one tree does not damage the next.
    """
    if tags not in ("present", "absent"):
        raise InputError(f"tags={tags!r}", remedy='choose "present" or "absent"')
    check_on_error(on_error, errors)
    items = BracketReader(Tree, source, tagged=tags == "present", normalisation=normalisation).read(lines)
    yield from without_errors(items, errors if on_error == "skip" else None)


def parse_tree(
    text: str, *, tags: Literal["present", "absent"] = "absent", normalisation: Normalisation = AS_WRITTEN
) -> Tree:
    """The one tree in the text; by default as ``str(tree)`` writes it. Raises ``InputError`` otherwise."""
    return only_tree(iter_trees(text.split("\n"), tags=tags, normalisation=normalisation))


def format_tree(tree: Tree, tags: Sequence[str] | None = None, *, with_tags: bool = True) -> str:
    """The tree in brackets on one line, with a tag over each word, ``X`` when ``tags`` is None.

    Round brackets in words are written ``-LRB-`` and ``-RRB-``. ``with_tags=False`` writes words bare. Raises
    ``InputError`` for words and labels that cannot be read back: with ASCII whitespace, or empty words; raises
    ``ValueError`` when there is not one tag a word.
    """
    remaining = iter(tags) if tags is not None else None

    def preterminal(word: str) -> str:
        if not with_tags:
            return _written(word)
        tag = UNKNOWN_TAG if remaining is None else next(remaining, None)
        if tag is None:
            raise ValueError("fewer tags than words")
        return f"({_checked(tag, _NOT_IN_LABEL)} {_written(word)})"

    text = bracketed(tree, lambda label: _checked(label, _NOT_IN_LABEL), preterminal)
    if remaining is not None and next(remaining, None) is not None:
        raise ValueError("more tags than words")
    return text


def _written(word: str) -> str:
    if not word:
        raise InputError("an empty word", remedy="brackets cannot hold it: give every word a form")
    return escape(_checked(word, _BLANK))


def _checked(text: str, forbidden: re.Pattern[str]) -> str:
    if forbidden.search(text):
        raise InputError(f"{text!r} cannot be written in brackets", remedy="replace blanks (and brackets in labels)")
    return text
