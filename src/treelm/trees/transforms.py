"""Trees to trees: other words, unary chains, binary branching."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from treelm.trees.tree import Tree, fold

UNPARSED: Final = "UNPARSED"  # label of the flat tree that is written where there is none
BINARY_MARK: Final = "|<>"  # ends the label of a constituent that binarising made: ``NP|<>`` is a part of an ``NP``


def replace_words(tree: Tree, pieces: Sequence[Sequence[str]]) -> Tree | None:
    """Replace each word by words: one, several, or none; None when no word is left at all.

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


def keep_words(tree: Tree, keep: Sequence[bool], words: Sequence[str]) -> Tree | None:
    """Leave out words, and constituents that this empties; None when no word is left.

    ``keep`` says of each word whether it stays, and ``words`` are the new forms of those that stay.
    """
    new = iter(words)
    return replace_words(tree, [(next(new),) if kept else () for kept in keep])


def collapse_unaries(tree: Tree) -> Tree:
    """Make one constituent of each chain of constituents with one child, labelled as the top of the chain."""

    def merged(label: str, children: Sequence[Tree | str]) -> Tree:
        child = children[0]
        return Tree(label, children if len(children) > 1 or isinstance(child, str) else child.children)

    return fold(tree, merged)


def binarise_left(tree: Tree, mark: str = BINARY_MARK) -> Tree:
    """Branch left where there are three or more children: ``(NP a b c)`` becomes ``(NP (NP|<> a b) c)``.

    Constituents of one child stay as they are.
    """

    def branch(label: str, children: Sequence[Tree | str]) -> Tree:
        node, *others = children
        for child in others[:-1]:
            node = Tree(label + mark, (node, child))
        return Tree(label, (node, *others[-1:]))

    return fold(tree, branch)


def binarise_right(tree: Tree, mark: str = BINARY_MARK) -> Tree:
    """Branch right where there are three or more children: ``(NP a b c)`` becomes ``(NP a (NP|<> b c))``.

    Constituents of one child stay as they are.
    """

    def branch(label: str, children: Sequence[Tree | str]) -> Tree:
        *others, node = children
        for child in others[:0:-1]:
            node = Tree(label + mark, (child, node))
        return Tree(label, (*others[:1], node))

    return fold(tree, branch)
