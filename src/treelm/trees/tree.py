"""The syntax tree: a label over children, which are trees or words."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeVar, cast, final

from treelm.errors import InputError, import_extra, without_errors

if TYPE_CHECKING:
    from nltk.tree import Tree as NltkTree

Node = TypeVar("Node")

MAX_SVG_HEIGHT = 200  # tallest tree that ``Tree.to_svg`` draws: svgling recurses, and a taller drawing is of no use


class Span(NamedTuple):
    """A constituent as label and word positions ``start <= i < end``."""

    label: str
    start: int
    end: int


@final
class Tree:
    """An immutable constituent: a label over children, which are trees and words, at least one.

    Words are direct children of constituents: part-of-speech tags are set apart when a file is read. No method
    recurses, so that the depth of a tree is bounded by memory alone.
    """

    __slots__ = ("children", "label")

    label: str
    children: tuple[Tree | str, ...]

    def __init__(self, label: str, children: Iterable[Tree | str]) -> None:
        """Build a constituent; raises ``ValueError`` without children."""
        kept = tuple(children)
        if not kept:
            raise ValueError(f"constituent {label!r} has no children")
        _set_label(self, label)
        _set_children(self, kept)

    def __setattr__(self, name: str, value: object) -> None:
        """Refuse: trees are immutable."""
        raise AttributeError(f"trees are immutable; build a new one instead of setting {name!r}")

    def preorder(self) -> Iterator[Tree | str]:
        """Every constituent and word, parents before children, left to right."""
        todo: list[Tree | str] = [self]
        while todo:
            node = todo.pop()
            yield node
            if isinstance(node, Tree):
                todo.extend(reversed(node.children))

    def words(self) -> list[str]:
        """The words, left to right."""
        return [node for node in self.preorder() if isinstance(node, str)]

    def constituents(self) -> list[Tree]:
        """The constituents, parents before children, left to right; the first is the tree itself."""
        return [node for node in self.preorder() if isinstance(node, Tree)]

    def spans(self) -> list[Span]:
        """Label and word positions of every constituent, in the order of ``constituents``."""
        constituents = self.constituents()
        num_words = dict.fromkeys(map(id, constituents), 0)
        for node in reversed(constituents):
            num_words[id(node)] = sum(1 if isinstance(child, str) else num_words[id(child)] for child in node.children)
        spans: list[Span] = []
        position = 0
        for item in self.preorder():
            if isinstance(item, str):
                position += 1
            else:
                spans.append(Span(item.label, position, position + num_words[id(item)]))
        return spans

    @property
    def height(self) -> int:
        """Number of constituents on the longest path from the top to a word; 1 for a constituent over words only."""
        return heights_of(self)[id(self)]

    def __eq__(self, other: object) -> bool:
        """Equal labels over equal children."""
        if self is other:
            return True
        return self.flat() == other.flat() if isinstance(other, Tree) else NotImplemented

    def __hash__(self) -> int:
        """Hash labels and words; equal trees have equal hashes."""
        return hash(self.flat())

    def __repr__(self) -> str:
        """Write Python that builds the tree again."""
        return f"Tree.parse({str(self)!r})"

    def __str__(self) -> str:
        """The tree in brackets on one line, words without tags: ``(S (NP dogs) (VP bark))``."""
        return bracketed(self, str, escape)

    @staticmethod
    def parse(text: str) -> Tree:
        """The tree that a text in brackets shows, words without tags: the inverse of ``str(tree)``.

        Raises ``InputError`` unless the text is one tree.
        """
        from treelm.trees.brackets import read_trees

        read = read_trees(text, has_tags=False, separators="", unwrap=False)
        found = [one.tree for one in without_errors(read, None)]
        if len(found) != 1:
            raise InputError(f"{len(found)} trees where one was expected", where="<text>", remedy="give one tree")
        return found[0]

    def __reduce__(self) -> tuple[Callable[..., Tree], tuple[tuple[str | tuple[str, int], ...]]]:
        """Pickle the flat preorder: without recursion, however deep the tree."""
        return from_flat, (self.flat(),)

    def flat(self) -> tuple[str | tuple[str, int], ...]:
        """The preorder with a constituent as (label, number of children): no nesting, and one-to-one with trees."""
        return tuple(node if isinstance(node, str) else (node.label, len(node.children)) for node in self.preorder())

    @staticmethod
    def from_nltk(tree: NltkTree) -> Tree:
        """The same tree from an ``nltk.Tree``; preterminals stay constituents."""
        flat: list[str | tuple[str, int]] = []
        todo = [tree]
        while todo:
            node = todo.pop()
            if isinstance(node, str):
                flat.append(node)
            else:
                flat.append((str(node.label()), len(node)))
                todo.extend(reversed(node))
        return from_flat(tuple(flat))

    def to_nltk(self) -> NltkTree:
        """The same tree as an ``nltk.Tree``; raises ``InputError`` when nltk is not installed."""
        converted: NltkTree = fold(self, import_extra("nltk.tree", "nltk").Tree)
        return converted

    def to_svg(self) -> str:
        """The tree as an SVG drawing; raises ``InputError`` above ``MAX_SVG_HEIGHT``."""
        if self.height > MAX_SVG_HEIGHT:
            found = f"a tree of {self.height} levels is too tall for a drawing"
            raise InputError(found, remedy=f"draw a part of at most {MAX_SVG_HEIGHT} levels")
        import svgling

        def nested(label: str, children: Sequence[object]) -> tuple[object, ...]:
            return xml_characters(label), *(xml_characters(one) if isinstance(one, str) else one for one in children)

        return str(svgling.draw_tree(fold(self, nested)).get_svg().tostring())

    def _repr_svg_(self) -> str | None:
        """The picture for a notebook; None, so that it shows text, when the tree is too tall for a drawing."""
        return self.to_svg() if self.height <= MAX_SVG_HEIGHT else None


# Slot descriptors write past the guard in __setattr__, at half the cost of object.__setattr__.
_set_label: Callable[[Tree, str], None] = Tree.__dict__["label"].__set__
_set_children: Callable[[Tree, tuple[Tree | str, ...]], None] = Tree.__dict__["children"].__set__


_NOT_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff\ufffe\uffff]")


def xml_characters(text: str) -> str:
    """The text with U+FFFD instead of control characters and others that XML and HTML do not allow."""
    return _NOT_XML.sub("\N{REPLACEMENT CHARACTER}", text)


def escape(word: str) -> str:
    """The word with round brackets written ``-LRB-`` and ``-RRB-``."""
    return word.replace("(", "-LRB-").replace(")", "-RRB-")


def bracketed(tree: Tree, write_label: Callable[[str], str], write_word: Callable[[str], str]) -> str:
    """The tree in brackets on one line, labels and words as these functions write them."""
    parts: list[str] = []
    todo: list[Tree | str | None] = [tree]
    while todo:
        node = todo.pop()
        if node is None:
            parts.append(")")
        elif isinstance(node, Tree):
            parts.append(f" ({write_label(node.label)}")
            todo.append(None)
            todo.extend(reversed(node.children))
        else:
            parts.append(f" {write_word(node)}")
    return "".join(parts)[1:]


def fold(tree: Tree, combine: Callable[[str, list[Node | str]], Node]) -> Node:
    """Rebuild a tree from its words up: ``combine(label, children)`` makes a node of what the children became.

    Words stay as they are. Children come before parents, and right before left.
    """
    done: list[Node | str] = []
    for node in reversed(list(tree.preorder())):
        if isinstance(node, str):
            done.append(node)
        else:
            done.append(combine(node.label, _take(done, len(node.children))))
    top = done.pop()
    return cast(Node, top)


def heights_of(tree: Tree) -> dict[int, int]:
    """The height of every constituent, by its ``id``."""
    heights: dict[int, int] = {}
    for node in reversed(tree.constituents()):
        heights[id(node)] = 1 + max(0 if isinstance(child, str) else heights[id(child)] for child in node.children)
    return heights


def from_flat(flat: Sequence[str | tuple[str, int]]) -> Tree:
    """The tree whose preorder this is: the inverse of ``Tree.flat``."""
    done: list[Tree | str] = []
    for item in reversed(flat):
        done.append(item if isinstance(item, str) else Tree(item[0], _take(done, item[1])))
    (top,) = done
    assert isinstance(top, Tree), "the top of a tree is a constituent"
    return top


def from_spans(words: Sequence[str], chains: Iterable[tuple[int, int, Sequence[str]]]) -> Tree:
    """The tree over these words of constituents that nest, one of them over all words, in any order.

    Each is where it begins and ends, and its labels from the top: several are a unary chain.
    """
    found: dict[int, tuple[int, Tree | str]] = {start: (start + 1, word) for start, word in enumerate(words)}
    for start, end, labels in sorted(chains, key=lambda chain: (-chain[0], chain[1])):  # children first
        children, place = list[Tree | str](), start
        while place < end:
            place, child = found[place]
            children.append(child)
        for label in reversed(labels):
            children = [Tree(label, children)]
        found[start] = end, children[0]
    top = found[0][1]
    assert isinstance(top, Tree), "the sentence is a constituent"
    return top


def _take(done: list[Node | str], count: int) -> list[Node | str]:
    """Remove the last ``count`` items, the last first."""
    if count == 0:
        return []
    taken = done[: -count - 1 : -1]
    del done[-count:]
    return taken
