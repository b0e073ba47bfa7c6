"""The picture of what the tree of a sentence follows from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from treelm.figures.pictures import picture
from treelm.io.atomic import write_atomically
from treelm.papers.measures.base import Measured, OfRuns, Subject

PICTURE = "picture.svg"


@dataclass(frozen=True, kw_only=True)
class Picture(OfRuns):
    """The picture of what the tree of a sentence follows from, written beside the run."""

    sentence: str

    def metrics(self) -> Sequence[str]:
        """None: it is a picture."""
        return ()

    def of_run(self, subject: Subject) -> Measured:
        """Draw it."""
        lm = subject.model({})
        (tree,) = lm.parse([self.sentence.split()])
        write_atomically(subject.run / PICTURE, picture(lm, tree).encode())
        return Measured()
