"""The syntax tree: a label over children, which are trees or words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple, final


class Span(NamedTuple):
    """A constituent as label and word positions ``start <= i < end``."""

    label: str
    start: int
    end: int


@final
class Tree:
    """An immutable constituent. Its children are trees and words, at least one.

    In memory, words are direct children of constituents: part-of-speech tags are dropped when a file is read. No method
    recurses, so depth is bounded by memory alone.
    """

    __slots__ = ("children", "label")

    label: str
    children: tuple[Tree | str, ...]

    def __init__(self, label: str, children: Iterable[Tree | str]) -> None:
        """Build a constituent; raises ``ValueError`` without children."""
        kept = tuple(children)
        if not kept:
            raise ValueError(f"constituent {label!r} has no children")
        object.__setattr__(self, "label", label)
        object.__setattr__(self, "children", kept)

    def __setattr__(self, name: str, value: object) -> None:
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
