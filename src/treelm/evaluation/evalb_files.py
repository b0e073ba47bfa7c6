"""Files that EVALB reads: brackets, as a scorer must read them (tags, empty trees, bad lines that lose nothing else),
and parameters, the sets that everybody uses by name and ``.prm`` files.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, compress
from pathlib import Path
from typing import Any

from treelm.corpora.sentence import Sentence
from treelm.errors import InputError
from treelm.io.files import read_text
from treelm.trees.brackets import TOKEN, UNKNOWN_TAG
from treelm.trees.tree import Span, Tree


@dataclass(frozen=True, kw_only=True)
class Bracketing:
    """A sentence as a scorer sees it: tagged words, and constituents over all of them in the order in which they open.

    ``problem`` says why a line could not be read; then there are no words and no constituents.
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
        return replace(self, tags=tuple(tags))

    def over(self, keep: Sequence[bool]) -> Bracketing:
        """The words that are kept, and the constituents that have some of them, over these."""
        if all(keep) and all(start < end for _, start, end in self.spans):
            return self
        position = [0, *accumulate(keep)]
        moved = [Span(label, position[start], position[end]) for label, start, end in self.spans]
        spans = tuple(span for span in moved if span.start < span.end)
        words, tags = tuple(compress(self.words, keep)), tuple(compress(self.tags, keep))
        return replace(self, words=words, tags=tags, spans=spans)

    @property
    def has_tags(self) -> bool:
        """Tell whether any word has a tag other than the unknown one."""
        return any(tag != UNKNOWN_TAG for tag in self.tags)


def bracketing_of(tree: Tree, *, tags: Sequence[str] | None = None, where: str = "") -> Bracketing:
    """Convert a tree, whose words have no tags, with the tags that are given, or else the unknown tag for all words."""
    words = tuple(tree.words())
    unknown = Bracketing(words=words, tags=(UNKNOWN_TAG,) * len(words), spans=tuple(tree.spans()), where=where)
    return unknown if tags is None else unknown.with_tags(tags)


def gold_tree(sentence: Sentence) -> Tree:
    """The tree of a sentence; raises ``InputError`` for one without."""
    if sentence.tree is None:
        raise InputError("a sentence without a tree", where=sentence.where, remedy="give brackets or CoNLL-U")
    return sentence.tree


def gold_bracketing(sentence: Sentence) -> Bracketing:
    """The tree of a sentence with its tags; raises ``InputError`` for one without a tree."""
    return bracketing_of(gold_tree(sentence), tags=sentence.tags, where=sentence.where)


def parse_bracketing(text: str, *, where: str = "") -> Bracketing:
    """Read one sentence in brackets; a sentence that cannot be read gives a ``Bracketing`` with a ``problem``."""
    words, tags, spans = list[str](), list[str](), list[Span]()
    open_spans = list[int]()  # numbers of the constituents that are not closed yet
    for label, word, closing, bare in TOKEN.findall(text):
        if bare:
            return Bracketing(where=where, problem=f"word {bare!r} has no bracket with its tag")
        if len(closing) > len(open_spans):
            return Bracketing(where=where, problem="a closing bracket too many")
        for _ in closing:
            index = open_spans.pop()
            spans[index] = spans[index]._replace(end=len(words))
        if word:
            words.append(word)
            tags.append(label)
        elif not closing:
            open_spans.append(len(spans))
            spans.append(Span(label, len(words), -1))
    if open_spans:
        return Bracketing(where=where, problem=f"{len(open_spans)} brackets are not closed")
    return Bracketing(words=tuple(words), tags=tuple(tags), spans=tuple(spans), where=where)


def read_bracketings(path: Path) -> list[Bracketing]:
    """Read every sentence of a bracket file (``.gz`` too), for scoring.

    As in EVALB, there is one sentence a line, and an empty line stands for a sentence whose parse failed. If the first
    tree goes on after its first line, all trees may take several lines, and empty lines mean nothing. Raises
    ``InputError`` for a file that cannot be read or is empty, and for brackets over several lines that do not match.
    """
    text = read_text(path)
    if not text.strip():
        raise InputError("the file has no trees", where=str(path), remedy="give a file with one tree a line")
    lines = text.removesuffix("\n").split("\n")
    if not any(line.lstrip().startswith("(") for line in lines):
        remedy = "give a file with one tree a line; CoNLL-U and text have none (treelm evaluate RUN --data reads them)"
        raise InputError("no line begins with a bracket: these are no trees", where=str(path), remedy=remedy)
    first = next(line for line in lines if line.strip())
    if first.count("(") > first.count(")"):
        return [parse_bracketing(text, where=where) for text, where in _trees(lines, path)]
    return [parse_bracketing(line, where=f"{path}:{number}") for number, line in enumerate(lines, start=1)]


def _trees(lines: Iterable[str], path: Path) -> Iterator[tuple[str, str]]:
    """Yield the text of each tree, which may take several lines, and the place where it begins (``file:line``).

    Raises ``InputError`` for brackets that do not match.
    """
    depth, parts, begun = 0, list[str](), 0
    for number, line in enumerate(lines, start=1):
        for token in TOKEN.finditer(line):
            begun = begun if parts else number
            parts.append(token.group())
            depth += parts[-1].count("(") - parts[-1].count(")")
            if depth < 0:
                raise InputError("a closing bracket too many", where=f"{path}:{number}", remedy="correct the brackets")
            if depth == 0:
                yield " ".join(parts), f"{path}:{begun}"
                parts = []
    if parts:
        raise InputError(f"{depth} brackets of this tree are not closed", where=f"{path}:{begun}", remedy="close them")


@dataclass(frozen=True, kw_only=True)
class Parameters:
    """Rules of what is left out before brackets are counted, and what counts as equal, as in EVALB's README.

    A tag in ``delete_labels`` deletes words with this tag, any other label deletes constituents with this label. Pairs
    of equal labels and words are unordered.
    """

    name: str
    labeled: bool = True
    cutoff_length: int = 40
    delete_labels: tuple[str, ...] = ()
    delete_labels_for_length: tuple[str, ...] = ()
    quote_labels: tuple[str, ...] = ()
    equal_labels: tuple[tuple[str, str], ...] = ()
    equal_words: tuple[tuple[str, str], ...] = ()
    max_errors: int = 10

    def same_label(self, first: str, second: str) -> bool:
        """Tell whether two labels (or tags) count as the same."""
        return first == second or not {(first, second), (second, first)}.isdisjoint(self.equal_labels)

    def same_word(self, first: str, second: str) -> bool:
        """Tell whether two words count as the same."""
        return first == second or not {(first, second), (second, first)}.isdisjoint(self.equal_words)

    def deletes_constituent(self, label: str) -> bool:
        """Tell whether brackets with this label (function tags are cut) are left out; equal labels count here too."""
        return any(self.same_label(label, deleted) for deleted in self.delete_labels)

    def unlabeled(self) -> Parameters:
        """The same rules with labels ignored when brackets are matched (``LABELED 0``)."""
        return replace(self, labeled=False)


COLLINS = Parameters(
    name="collins",
    delete_labels=("TOP", "-NONE-", ",", ":", "``", "''", "."),
    delete_labels_for_length=("-NONE-",),
    equal_labels=(("ADVP", "PRT"),),
)
"""``COLLINS.prm``: the scoring of Collins (1997), which published labelled F1 on English uses."""

NEW = replace(
    COLLINS,
    name="new",
    delete_labels=("TOP", "S1", "-NONE-", ",", ":", "``", "''", ".", "?", "!"),
    quote_labels=("``", "''", "POS", "NN", "CD", "VBZ", ":"),
)
"""``new.prm`` of the 2006 release: also deletes ``S1``, ``?``, ``!``, and corrects quotes that are tagged otherwise."""

BUILT_IN = {parameters.name: parameters for parameters in (COLLINS, NEW)}


def find_parameters(name_or_path: str) -> Parameters:
    """Find a built-in set of parameters by its name, or read the ``.prm`` file at this path."""
    return BUILT_IN[name_or_path] if name_or_path in BUILT_IN else read_parameters(Path(name_or_path))


def read_parameters(path: Path) -> Parameters:
    """Read a ``.prm`` file. Raises ``InputError`` with file and line for anything that EVALB would only warn about."""
    remedy = f"give a .prm file or one of {', '.join(BUILT_IN)}"
    return parse_parameters(read_text(path, remedy=remedy, may_be_pipe=False), source=str(path))


def parse_parameters(text: str, *, source: str) -> Parameters:
    """Parse the text of a ``.prm`` file: a keyword and its value a line; ``#`` in the first column begins a comment.

    Raises ``InputError`` for a line that cannot be read, and for a parameter that is not supported.
    """
    fields: dict[str, Any] = {}
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        where = f"{source}:{number}"
        keyword, *values = line.split()
        if keyword not in _KEYWORDS:
            raise InputError(f"unknown keyword {keyword!r}", where=where, remedy=f"use one of {', '.join(_KEYWORDS)}")
        field, num_values, pattern = _KEYWORDS[keyword]
        if len(values) != num_values:
            remedy = f"give exactly {num_values}, separated by spaces"
            raise InputError(f"{keyword} has {len(values)} values", where=where, remedy=remedy)
        if pattern is None:
            fields.setdefault(field, []).append(tuple(values) if num_values == 2 else values[0])
        elif re.fullmatch(pattern, values[0]):
            fields[field] = bool(int(values[0])) if pattern == _SWITCH else int(values[0])
        else:
            expected = "0 or 1" if pattern == _SWITCH else "a whole number, 0 or more"
            raise InputError(f"value {values[0]!r}", where=where, remedy=f"give {expected}")
        if keyword == "DISC_ONLY" and fields[field]:
            found = "DISC_ONLY 1 scores only discontinuous constituents, and Penn brackets have none"
            raise InputError(found, where=where, remedy="set it to 0")
    fields.pop("", None)
    fields = {name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()}
    return Parameters(name=Path(source).name, **fields)


_SWITCH, _COUNT = "[01]", "[0-9]{1,18}"
_KEYWORDS: dict[str, tuple[str, int, str | None]] = {
    "DEBUG": ("", 1, _COUNT),
    "MAX_ERROR": ("max_errors", 1, _COUNT),
    "CUTOFF_LEN": ("cutoff_length", 1, _COUNT),
    "LABELED": ("labeled", 1, _SWITCH),
    "DISC_ONLY": ("", 1, _SWITCH),
    "DELETE_LABEL": ("delete_labels", 1, None),
    "DELETE_LABEL_FOR_LENGTH": ("delete_labels_for_length", 1, None),
    "QUOTE_LABEL": ("quote_labels", 1, None),
    "EQ_LABEL": ("equal_labels", 2, None),
    "EQ_WORD": ("equal_words", 2, None),
}
"""The field of each keyword ("": it says nothing about scores), how many values it has, and what a number looks like;
of texts, every line adds one."""
