"""One sentence as it was read."""

from dataclasses import dataclass

from treelm.trees.tree import Tree


@dataclass(frozen=True, kw_only=True, slots=True)
class Sentence:
    """Words, with the tree if the source has one, and where they stand."""

    words: tuple[str, ...]
    tree: Tree | None = None
    tags: tuple[str, ...] | None = None  # part-of-speech tags of the words, if the source has them
    text: str | None = None  # the text that the words were cut from, if the source gives it
    identifier: str  # the source's own sentence id, else the number of its line
    source: str  # file name, or "<stdin>"
    line: int  # of the sentence's first line, from 1

    @property
    def where(self) -> str:
        """``file:line``, as error messages name it."""
        return f"{self.source}:{self.line}"
