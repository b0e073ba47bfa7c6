"""Trees that systems have found for the same sentences, by several seeds and by both builders."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from treelm.evaluation.evalb_files import Bracketing, bracketing_of
from treelm.evaluation.trivial_baselines import BUILDERS
from treelm.inference.batching import batched
from treelm.models.base import LanguageModel
from treelm.models.capabilities import Parser, require
from treelm.models.streams import DistanceParser
from treelm.trees.distances import tree_from_distances

Distances = NDArray[np.float64]
_Result = TypeVar("_Result")
_BATCH = 64  # sentences that are parsed at a time; progress is reported after each batch


@dataclass(frozen=True, kw_only=True)
class LearnedTrees:
    """Trees of the same sentences by several seeds of one system, or several draws of random ones."""

    name: str
    seeds: Sequence[Sequence[Bracketing]]
    distances: Sequence[Sequence[Distances]] = ()
    """For each seed and sentence, the distances before all words; empty if the trees do not come from any."""


def learned_trees(
    lm: LanguageModel, sentences: Sequence[Sequence[str]], *, on_sentence: Callable[[], None] = lambda: None
) -> Iterator[LearnedTrees]:
    """The trees of one model, named by its system; if they come from distances, by both builders.

    ``on_sentence`` is called for each sentence that the model has read, some at a time.

    Raises ``InputError`` for a system without trees.
    """
    parser = require(lm, Parser)

    def of_each(compute: Callable[[Sequence[Sequence[str]]], Iterable[_Result]]) -> Iterator[_Result]:
        for group in batched(sentences, _BATCH):
            for result in compute(group):
                yield result
                on_sentence()

    if not isinstance(lm, DistanceParser):
        parsed = [bracketing_of(tree) for tree in of_each(parser.parse)]
        yield LearnedTrees(name=lm.system, seeds=(parsed,))
        return
    distances = list(of_each(lm.word_distances))
    for builder in BUILDERS:
        trees = (tree_from_distances(*pair, builder=builder) for pair in zip(sentences, distances, strict=True))
        found = [bracketing_of(tree) for tree in trees]
        yield LearnedTrees(name=f"{lm.system}, {builder} builder", seeds=(found,), distances=(distances,))


def together(name: str, parts: Sequence[LearnedTrees]) -> LearnedTrees:
    """The seeds of all parts as those of one system."""
    seeds = [seed for part in parts for seed in part.seeds]
    return LearnedTrees(name=name, seeds=seeds, distances=[seed for part in parts for seed in part.distances])
