"""Scores of trees that know nothing, and the best that binary trees can do, under a protocol of unlabelled F1."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import fmean
from typing import Literal, get_args

import numpy as np

from treelm.evaluation.evalb_files import Bracketing, bracketing_of
from treelm.evaluation.span_protocols import SpanProtocol, choose_removal, kept_words, score_spans
from treelm.trees.distances import tree_from_distances
from treelm.trees.tree import Tree, from_spans
from treelm.trees.trivial import (
    balanced,
    binary_upper_bound,
    left_branching,
    random_splits,
    random_uniform,
    right_branching,
)


@dataclass(frozen=True, kw_only=True)
class Baseline:
    """F1 of trivial trees in 0..100 under a protocol; for random trees, the mean over seeds."""

    name: str
    protocol: str
    corpus_f1: float
    sentence_f1: float
    num_seeds: int = 1


TreeBuilder = Literal["biased", "unbiased"]
BUILDERS: tuple[TreeBuilder, ...] = get_args(TreeBuilder)
_Draw = Callable[[Sequence[str], np.random.Generator], Tree]


def _by_distances(words: Sequence[str], generator: np.random.Generator, builder: TreeBuilder) -> Tree:
    return tree_from_distances(words, generator.random(len(words)), builder=builder)


_RULES = {"left-branching": left_branching, "right-branching": right_branching, "balanced": balanced}
_RANDOM: dict[str, _Draw] = {"random": random_splits, "random, uniform over trees": random_uniform}
_OF_DISTANCES: dict[str, _Draw] = {
    f"random distances, {builder} builder": partial(_by_distances, builder=builder) for builder in BUILDERS
}
UPPER_BOUND = "binary upper bound"
"""The row that no binary trees exceed."""
NUM_TRIVIAL = len(_RULES) + len(_RANDOM) + len(_OF_DISTANCES) + 1
"""Rows of ``trivial_trees`` with those of random distances; the last one is the upper bound."""


def trivial_baselines(
    gold: Sequence[Bracketing],
    protocol: SpanProtocol,
    *,
    num_seeds: int = 5,
    seed: int = 1,
    random_distances: bool = False,
    upper_bound: bool = True,
) -> list[Baseline]:
    """Score left-branching, right-branching, balanced and random trees, and gold trees made binary, under a protocol.

    All trees are over the words that the protocol keeps. Random trees are split anywhere, or are uniform over binary
    trees (RANDOM of Klein 2005 and of Shen et al. 2018); their F1 is the mean over ``num_seeds`` draws.
    ``random_distances`` adds trees that the builders make from distances drawn uniformly in 0..1. The upper bound is
    the F1 of the gold tree made binary, as the protocol does it or else from the right: no binary tree exceeds it.
    """
    rows = []
    for name, seeds in trivial_trees(gold, protocol, num_seeds=num_seeds, seed=seed, random_distances=random_distances):
        if name == UPPER_BOUND and not upper_bound:
            continue
        results = [score_spans(gold, trees, protocol) for trees in seeds]
        rows.append(
            Baseline(
                name=name,
                protocol=results[0].name,
                corpus_f1=fmean(result.corpus_f1 for result in results),
                sentence_f1=fmean(result.sentence_f1 for result in results),
                num_seeds=len(results),
            )
        )
    return rows


def trivial_trees(
    gold: Sequence[Bracketing],
    protocol: SpanProtocol,
    *,
    num_seeds: int = 5,
    seed: int = 1,
    random_distances: bool = False,
) -> Iterator[tuple[str, list[list[Bracketing]]]]:
    """Yield the name of each row of ``trivial_baselines`` with its trees, by draw and sentence.

    Trees are over the words that the protocol keeps; a sentence without such words has an empty one.
    """
    removal = choose_removal(gold, protocol)
    kept = [_kept_tree(sentence, kept_words(sentence, removal)) for sentence in gold]

    def built(build: Callable[[Tree], Tree]) -> list[Bracketing]:
        return [Bracketing() if tree is None else bracketing_of(build(tree)) for tree in kept]

    def drawn(draw: _Draw, own_seed: int) -> list[Bracketing]:
        generator = np.random.default_rng(own_seed)
        return built(lambda tree: draw(tree.words(), generator))

    for name, rule in _RULES.items():
        yield name, [built(lambda tree, rule=rule: rule(tree.words()))]  # type: ignore[misc]
    for name, draw in (_RANDOM | (_OF_DISTANCES if random_distances else {})).items():
        yield name, [drawn(draw, seed + offset) for offset in range(num_seeds)]
    yield UPPER_BOUND, [built(partial(binary_upper_bound, branching=protocol.branching))]


def _kept_tree(sentence: Bracketing, keep: Sequence[bool]) -> Tree | None:
    """The tree over the words that stay, without constituents that have none of them; None if no word stays."""
    kept = sentence.over(keep)
    spans = [(start, end, [label]) for label, start, end in reversed(kept.spans)]
    return from_spans(kept.words, [*spans, (0, len(kept.words), [""])]) if kept.words else None
