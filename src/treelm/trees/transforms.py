"""Trees to trees: the normal form of bracket files, unary chains, binary branching and back.

The reader of bracket files takes the steps of the normal form while it reads; ``strip_functions``, ``drop_empties``,
``drop_tags`` and ``unwrap_outer_bracket`` are for trees from elsewhere. A tree "with tags" has a constituent over each
word alone, its part-of-speech tag.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

from treelm.errors import InputError
from treelm.trees.bracket_reader import EMPTY_TAG, TOP_LABELS, strip_function
from treelm.trees.tree import Tree, fold, from_flat

UNKNOWN_TAG: Final = "X"
"""Part-of-speech tag that is written when none is known."""
UNPARSED: Final = "UNPARSED"
"""Label of the flat tree that is written where there is none."""
BINARY_MARK: Final = "|<>"
"""Ends the label of a constituent that binarising made: ``NP|<>`` is a part of an ``NP``."""


def strip_functions(tree: Tree) -> Tree:
    """Cut function tags and indices off every label: ``NP-SBJ=1`` becomes ``NP``; ``-NONE-`` and ``-LRB-`` stay."""
    return fold(tree, lambda label, children: Tree(strip_function(label), children))


def drop_empties(tree: Tree) -> Tree:
    """Leave out ``-NONE-`` and constituents that this empties; raises ``InputError`` when no word is left."""

    def kept(label: str, children: Sequence[Tree | str | None]) -> Tree | None:
        left = [child for child in children if child is not None]
        return None if label == EMPTY_TAG or not left else Tree(label, left)

    top = fold(tree, kept)
    if top is None:
        raise InputError("a tree without words", remedy="leave it out")
    return top


def replace_words(tree: Tree, pieces: Sequence[Sequence[str]]) -> Tree | None:
    """Put words in the place of each word: one, several, or none; None when no word is left at all.

    ``pieces[i]`` takes the place of word i, as children of the same constituent; constituents that are left empty go.
    Raises ``ValueError`` unless there is one item for each word.

    >>> str(replace_words(Tree.parse("(S (NP the mid-1980s) (X ,) go)"), [["the"], ["mid", "-", "1980s"], [], ["go"]]))
    '(S (NP the mid - 1980s) go)'
    """
    flat = tree.flat()
    left = list(pieces)
    if len(left) != sum(isinstance(item, str) for item in flat):
        raise ValueError(f"{len(left)} items for the words of {tree}")
    done: list[list[Tree | str]] = []  # what each item to the right becomes, the next item last
    for item in reversed(flat):
        if isinstance(item, str):
            done.append(list(left.pop()))
        else:
            label, count = item
            children = [child for become in reversed(done[-count:]) for child in become]
            del done[-count:]
            done.append([Tree(label, children)] if children else [])
    (top,) = done
    if not top:
        return None
    assert isinstance(top[0], Tree)
    return top[0]


def keep_words(tree: Tree, keep: Sequence[bool], words: Sequence[str] | None = None) -> Tree | None:
    """Leave out the words that ``keep`` does not name, and constituents that this empties; None when no word is left.

    ``words`` are what the kept ones become; without them they stay. Raises ``ValueError`` for wrong numbers.
    """
    old = tree.words()
    if len(keep) != len(old) or (words is not None and len(words) != sum(keep)):
        raise ValueError(f"{len(keep)} marks and {len(keep if words is None else words)} words for {tree}")
    names = iter([word for word, kept in zip(old, keep, strict=True) if kept] if words is None else words)
    return replace_words(tree, [(next(names),) if kept else () for kept in keep])


def drop_tags(tree: Tree) -> Tree:
    """Put words in the place of their tags; a tree that is one tag over one word stays.

    Only for trees with tags: where there are none, constituents of one word would be lost.
    """

    kept: list[str | tuple[str, int]] = []
    for item in tree.flat():
        if isinstance(item, str) and len(kept) > 1 and kept[-1][1:] == (1,):
            kept.pop()  # its tag
        kept.append(item)
    return from_flat(kept)


def unwrap_outer_bracket(tree: Tree) -> Tree:
    """The only child of an outer bracket (empty, ROOT or TOP), unless that is a word."""
    child = tree.children[0]
    return child if tree.label in TOP_LABELS and len(tree.children) == 1 and isinstance(child, Tree) else tree


def collapse_unaries(tree: Tree, labels: Literal["top", "bottom", "join"] = "top", *, joiner: str = "+") -> Tree:
    """Make one constituent of each chain of constituents with one child, labelled as its top or bottom.

    ``labels="join"`` keeps all of them: ``S`` over ``VP`` becomes ``S+VP``. Words stay below their constituent.
    """

    if labels not in ("top", "bottom", "join"):
        raise ValueError(f'labels {labels!r}: choose "top", "bottom" or "join"')

    def merged(label: str, children: Sequence[Tree | str]) -> Tree:
        child = children[0]
        if len(children) > 1 or isinstance(child, str):
            return Tree(label, children)
        names = {"top": label, "bottom": child.label, "join": f"{label}{joiner}{child.label}"}
        return Tree(names[labels], child.children)

    return fold(tree, merged)


def binarise_left(tree: Tree, mark: str = BINARY_MARK) -> Tree:
    """Branch left where there are three or more children: ``(NP a b c)`` becomes ``(NP (NP|<> a b) c)``.

    Constituents of one child stay. ``debinarise`` undoes it; raises ``ValueError`` when a label already ends with the
    mark.
    """

    def branch(label: str, children: Sequence[Tree | str]) -> Tree:
        node, *others = children
        for child in others[:-1]:
            node = Tree(label + mark, (node, child))
        return Tree(label, (node, *others[-1:]))

    return fold(_unmarked(tree, mark), branch)


def binarise_right(tree: Tree, mark: str = BINARY_MARK) -> Tree:
    """Branch right where there are three or more children: ``(NP a b c)`` becomes ``(NP a (NP|<> b c))``.

    Constituents of one child stay. ``debinarise`` undoes it; raises ``ValueError`` when a label already ends with the
    mark.
    """

    def branch(label: str, children: Sequence[Tree | str]) -> Tree:
        *others, node = children
        for child in others[:0:-1]:
            node = Tree(label + mark, (child, node))
        return Tree(label, (*others[:1], node))

    return fold(_unmarked(tree, mark), branch)


def debinarise(tree: Tree, mark: str = BINARY_MARK) -> Tree:
    """Put the children of every marked constituent in its place. Raises ``ValueError`` when the top is marked."""
    if not mark or tree.label.endswith(mark):
        raise ValueError(f"the top of the tree, {tree.label!r}, ends with the mark {mark!r}")
    kept: list[str | tuple[str, int]] = []
    counts: list[int] = []  # of children that the items to the right become, the next item last
    for item in reversed(tree.flat()):
        if isinstance(item, str):
            kept.append(item)
            counts.append(1)
            continue
        label, num_children = item
        total = sum(counts[-num_children:])
        del counts[-num_children:]
        if label.endswith(mark):
            counts.append(total)
        else:
            kept.append((label, total))
            counts.append(1)
    return from_flat(kept[::-1])


def _unmarked(tree: Tree, mark: str) -> Tree:
    """The tree, checked: marked labels would be lost when the binary tree is undone."""
    for node in tree.constituents():
        if mark and node.label.endswith(mark):
            raise ValueError(f"label {node.label!r} already ends with the mark {mark!r}")
    return tree
