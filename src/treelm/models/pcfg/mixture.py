"""Reading with several grammars at once: a sentence is of one of them, drawn before its first word."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from treelm.models.pcfg.reading import Reading
from treelm.models.pcfg.rules import Array, Rules


@dataclass(frozen=True, eq=False)
class MixedReading:
    """What is known after some words: a reading by each grammar, and how probable each is given the words."""

    readings: tuple[Reading, ...]
    weights: Array

    @classmethod
    def begin(cls, grammars: Sequence[Rules]) -> Self:
        """Nothing has been read, and all grammars are equally probable."""
        return cls(tuple(map(Reading.begin, grammars)), np.full(len(grammars), 1 / len(grammars)))

    @property
    def num_words(self) -> int:
        """Words that have been read."""
        return self.readings[0].num_words

    @property
    def end(self) -> float:
        """p(end | words)."""
        return float(self.weights @ np.array([one.end for one in self.readings]))

    def next_words(self) -> Array:
        """p(next word | words) and, last, p(end | words): (V + 1,)."""
        return self.weights @ np.stack([one.next_words() for one in self.readings])

    def extend(self, word: int) -> tuple[Self, float]:
        """Read one more word; gives its probability too."""
        of_each = np.array([one.probability_of(word) for one in self.readings])
        probability = float(self.weights @ of_each)
        weights = self.weights * of_each / probability if probability else self.weights
        return type(self)(tuple(one.extend(word) for one in self.readings), weights), probability

    def constituents(self, *, ended: bool) -> list[Array]:
        """The expected number of every symbol over every span, by its end: see ``Reading.constituents``."""
        weights = self.weights
        if ended:
            weights = weights * np.array([one.end for one in self.readings])
            weights = weights / weights.sum()
        found = [one.constituents(ended=ended) for one in self.readings]
        return [np.einsum("k,kis->is", weights, np.stack(columns)) for columns in zip(*found, strict=True)]
