"""Trees in brackets, in and out: ``(S (NP (NNS dogs)) (VP (VBP bark)) (. .))``."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from treelm.errors import SKIP, InputError
from treelm.trees.tree import Tree, bracketed, escape
from treelm.trees.treebanks import EMPTY_TAG, PENN, Treebank, repair_brackets

TOP_LABELS: Final = frozenset({"", "ROOT", "TOP"})  # labels of outer brackets, which hold a tree and are no constituent
UNKNOWN_TAG: Final = "X"  # part-of-speech tag that is written when none is known

# Possessive quantifiers: nothing is looked at twice. Whitespace is ASCII only: a no-break space is part of a word.
TOKEN = re.compile(
    r"\(\s*+([^\s()]*+)(?:\s++([^\s()]++)\s*+\))?+"  # an opening bracket with its label, or a whole ``(label word)``
    r"|(\)++)"
    r"|([^\s()]++)",
    re.ASCII,
)
_ESCAPES = {"-LRB-": "(", "-RRB-": ")", "-LSB-": "[", "-RSB-": "]", "-LCB-": "{", "-RCB-": "}"}
_ESCAPED = re.compile("|".join(_ESCAPES))
_NOT_IN_LABEL = re.compile(r"[\s()]", re.ASCII)
_UNESCAPED = (
    "an unescaped bracket of the text is the likely cause: write -LRB- and -RRB-, or give repair_brackets = true"
)
_NEWLINE = "\n"
_WHITESPACE = re.compile(r"\s", re.ASCII)


class BracketedTree(NamedTuple):
    """A tree as it was read, the tags of its words (None when the file has none), and the line where it starts."""

    tree: Tree
    tags: tuple[str, ...] | None
    line: int


@lru_cache(100_000)
def strip_function(label: str, separators: str = PENN.separators) -> str:
    """The label without function tags and indices: cut at the first separator after its first character.

    Labels that start with ``-`` (``-NONE-``, ``-LRB-``) stay whole.
    """
    places = [] if label.startswith("-") else [label.find(separator, 1) for separator in separators]
    return label[: min((place for place in places if place > 0), default=len(label))]


@lru_cache(100_000)  # so that equal words of a corpus are one object
def unescape(word: str) -> str:
    """The word with ``-LRB-`` and its like written as brackets, wherever they stand."""
    return _ESCAPED.sub(lambda match: _ESCAPES[match.group()], word) if "-" in word else word


def read_trees(
    text: str,
    *,
    source: str = "<text>",
    first_line: int = 1,
    has_tags: bool = True,
    treebank: Treebank = PENN,
    separators: str | None = None,
    unwrap: bool = True,
    left_out: Counter[str] | None = None,
) -> list[BracketedTree | InputError]:
    """The trees of a text in their normal form, and an ``InputError`` instead of each bad one. Takes linear time.

    Normal form: function tags are cut off labels (``NP-SBJ=1`` becomes ``NP``) at ``separators``, by default those of
    the treebank. Words tagged ``-NONE-``, all else that is annotation in this treebank, and constituents that this
    leaves empty are removed. The outer bracket (empty, ROOT or TOP) is removed if its only child is a constituent, and
    an empty one is named ROOT otherwise (``unwrap``). ``-LRB-`` and its like become brackets, also inside words.
    Part-of-speech tags stand beside the tree; with ``has_tags=False`` words have none. ``left_out`` counts what is
    removed, by its kind. Where a treebank has metadata, a tree of nothing else is left out too.

    What follows a bracket that closes nothing, or a word outside brackets, is not read, nor is the tree before it on
    the same line, because they may belong together.
    """
    cuts = treebank.separators if separators is None else separators
    is_plain = has_tags and treebank.is_plain
    left_out = Counter() if left_out is None else left_out
    found: list[BracketedTree | InputError] = []
    # Labels and children (None: dropped) of open constituents, and the number of tags before them
    stack: list[tuple[str, list[Tree | str | None], int]] = []
    tags: list[str] = []
    problem: InputError | None = None  # the first one of the open tree
    start, line = 0, first_line  # of the last tree
    places = enumerate(TOKEN.finditer(text))  # looked up where they are needed, which is faster

    def place_of(token: int) -> int:
        """Where a token begins; it is a later one at each call."""
        return next(match.start() for number, match in places if number == token)

    def error(what: str, remedy: str, place: int) -> InputError:
        where = f"{source}:{first_line + text.count(_NEWLINE, 0, place)}"
        if repair_brackets(content := text.encode(errors="surrogatepass")) != content:
            remedy = f"{_UNESCAPED}; else {remedy}"
        return InputError(what, where=where, remedy=f"{remedy}, {SKIP}")

    def finish(node: Tree | str | None) -> None:
        """Add the tree that has ended, or what is wrong with it."""
        if node is None and problem is None and treebank.metadata:
            left_out["trees without words"] += 1
        elif problem is not None or node is None:
            found.append(problem or error("a tree without words", "remove it or give it words", start))
        else:
            found.append(BracketedTree(_top(node, unwrap=unwrap), tuple(tags) if has_tags else None, line))

    for number, (label, word, closes, bare) in enumerate(TOKEN.findall(text)):
        if word and is_plain and stack and label != EMPTY_TAG:  # nearly all words
            stack[-1][1].append(unescape(word))
            tags.append(label)
        elif not closes and not bare:
            if not stack:
                place = place_of(number)
                line += text.count(_NEWLINE, start, place)
                start, problem, tags = place, None, []
            if not word:
                stack.append((label, [], len(tags)))
                continue
            text_word = treebank.text_of(label, word, left_out) if has_tags or not treebank.is_plain else word
            node: Tree | str | None = None if text_word is None else unescape(text_word)
            if node is not None and not has_tags:
                node = Tree(strip_function(label, cuts), (node,))
            elif node is not None:
                tags.append(label)
            stack[-1][1].append(node) if stack else finish(node)
        elif len(closes) > len(stack) or (bare and not stack):
            place = place_of(number)
            if not stack and found and _NEWLINE not in text[len(text[:place].rstrip()) : place]:
                found.pop()
            what = f"{bare!r} outside a tree" if bare else "a closing bracket that closes nothing"
            remedy = "remove it, as only trees may stand here (writeLines of R writes no more)" if bare else "remove it"
            return [*found, error(what, remedy, place)]
        elif bare:
            if has_tags and problem is None and not any(one in treebank.metadata for one, _, _ in stack):
                remedy = 'give it a bracket with a tag, or tags = "absent" if none has'
                problem = error(f"word {bare!r} has siblings instead of a tag of its own", remedy, place_of(number))
            stack[-1][1].append(unescape(bare))
        else:
            for _ in closes:
                label, children, num_tags = stack.pop()
                if not children and problem is None:
                    problem = error(f"bracket ({label}) holds no word", "remove it or give it a word", place_of(number))
                kept = [child for child in children if child is not None]
                node = Tree(strip_function(label, cuts), kept) if kept else None
                if label in treebank.metadata:
                    left_out[f"({label} ...)"] += 1
                    del tags[num_tags:]
                    node = None
                stack[-1][1].append(node) if stack else finish(node)
    if stack:
        missing = f"{len(stack)} closing bracket{'s' * (len(stack) > 1)}"
        found.append(error(f"this tree lacks {missing}", "add what is missing", start))
    return found


def _top(node: Tree | str, *, unwrap: bool) -> Tree:
    """The tree without its outer bracket; a word alone gets one."""
    if isinstance(node, str):
        return Tree("ROOT", (node,))
    child = node.children[0]
    if unwrap and node.label in TOP_LABELS and len(node.children) == 1 and isinstance(child, Tree):
        return child
    return node if node.label or not unwrap else Tree("ROOT", node.children)


def format_tree(tree: Tree, tags: Sequence[str] | None = None, *, with_tags: bool = True) -> str:
    """The tree in brackets on one line, with a tag over each word, ``X`` when ``tags`` is None.

    Round brackets in words are written ``-LRB-`` and ``-RRB-``. ``with_tags=False`` writes words bare. Raises
    ``InputError`` for words and labels that cannot be read back: with ASCII whitespace, or empty words; raises
    ``ValueError`` when there is not one tag a word.
    """
    words = tree.words()
    if tags is not None and len(tags) != len(words):
        raise ValueError(f"{len(tags)} tags for {len(words)} words")
    remaining = iter(tags or [UNKNOWN_TAG] * len(words))

    def write_word(word: str) -> str:
        if not word:
            raise InputError("an empty word", remedy="brackets cannot hold it: give every word a form")
        written = escape(_checked(word, _WHITESPACE))
        return f"({_checked(next(remaining), _NOT_IN_LABEL)} {written})" if with_tags else written

    return bracketed(tree, lambda label: _checked(label, _NOT_IN_LABEL), write_word)


def _checked(text: str, forbidden: re.Pattern[str]) -> str:
    if forbidden.search(text):
        remedy = "replace whitespace (and brackets in labels)"
        raise InputError(f"{text!r} cannot be written in brackets", remedy=remedy)
    return text
