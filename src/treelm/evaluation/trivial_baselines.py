"""Scores of trees that know nothing, and the best that binary trees can do, under a protocol of unlabelled F1."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

import numpy as np

from treelm.evaluation.evalb_files import Bracketing, bracketing_of
from treelm.evaluation.span_protocols import SpanProtocol, SpanResult, choose_removal, kept_words, score_spans
from treelm.trees.distances import tree_from_distances
from treelm.trees.tree import Tree
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
    """One row: F1 in 0..100 under the named protocol; means over seeds where there is chance."""

    name: str
    protocol: str
    corpus_f1: float
    sentence_f1: float
    num_seeds: int = 1

    def to_json(self) -> dict[str, Any]:
        """The row as JSON values."""
        return asdict(self)


TreeBuilder = Literal["biased", "unbiased"]
BUILDERS: tuple[TreeBuilder, ...] = get_args(TreeBuilder)

_RULES: dict[str, Callable[[Sequence[str]], Tree]] = {
    "left-branching": left_branching,
    "right-branching": right_branching,
    "balanced": balanced,
}
_RANDOM: dict[str, Callable[[Sequence[str], np.random.Generator], Tree]] = {
    "random": random_splits,
    "random, uniform over trees": random_uniform,
}
NUM_TRIVIAL = len(_RULES) + len(_RANDOM) + len(BUILDERS) + 1
"""Rows of ``trivial_trees`` with those of random distances; the last one is the upper bound."""


def trivial_baselines(
    gold: Sequence[Bracketing],
    protocol: SpanProtocol,
    *,
    num_seeds: int = 5,
    seed: int = 1,
    random_distances: bool = False,
) -> list[Baseline]:
    """Left-, right-branching, balanced and random trees, and gold trees made binary, over the words that are kept.

    Random trees split each range of words anywhere with equal probability; in a row of their own, each binary tree is
    as probable as any other (RANDOM of Klein 2005 and of Shen et al. 2018). Both rows are means over ``num_seeds``.
    ``random_distances`` adds rows for trees that the two builders make of random distances (uniform in 0..1): what is
    to be beaten by systems whose trees come from distances. Of the unbiased builder they are random splits again.
    The upper bound is the gold tree itself made binary, as the protocol makes it or else from the right: what it
    misses, no binary tree can find.
    """
    drawn = trivial_trees(gold, protocol, num_seeds=num_seeds, seed=seed, random_distances=random_distances)
    return [_row(name, [score_spans(gold, trees, protocol) for trees in seeds]) for name, seeds in drawn]


def trivial_trees(
    gold: Sequence[Bracketing],
    protocol: SpanProtocol,
    *,
    num_seeds: int = 5,
    seed: int = 1,
    random_distances: bool = False,
) -> Iterator[tuple[str, list[list[Bracketing]]]]:
    """The name of each row of ``trivial_baselines``, and for each of its seeds the trees over the words that are kept.

    A sentence of which no word is kept has an empty bracketing.
    """
    removal = choose_removal(gold, protocol)
    kept = [_kept_tree(sentence, kept_words(sentence, removal)) for sentence in gold]

    def built(build: Callable[[Tree], Tree]) -> list[Bracketing]:
        return [Bracketing() if tree is None else bracketing_of(build(tree)) for tree in kept]

    for name, rule in _RULES.items():
        yield name, [built(lambda tree, rule=rule: rule(tree.words()))]  # type: ignore[misc]
    for name, draw in _RANDOM.items():
        yield name, [built(_random(draw, seed + offset)) for offset in range(num_seeds)]
    for builder in BUILDERS if random_distances else ():
        draws = [built(_random_distances(seed + offset, builder)) for offset in range(num_seeds)]
        yield f"random distances, {builder} builder", draws
    branching: Literal["left", "right"] = "left" if protocol.binarises_gold else "right"
    yield "binary upper bound", [built(lambda tree: binary_upper_bound(tree, branching))]


def _random(draw: Callable[[Sequence[str], np.random.Generator], Tree], seed: int) -> Callable[[Tree], Tree]:
    generator = np.random.default_rng(seed)
    return lambda tree: draw(tree.words(), generator)


def _random_distances(seed: int, builder: TreeBuilder) -> Callable[[Tree], Tree]:
    generator = np.random.default_rng(seed)

    def build(tree: Tree) -> Tree:
        words = tree.words()
        return tree_from_distances(words, generator.random(len(words)), builder=builder)

    return build


def _row(name: str, results: Sequence[SpanResult]) -> Baseline:
    return Baseline(
        name=name,
        protocol=results[0].name,
        corpus_f1=float(np.mean([result.corpus_f1 for result in results])),
        sentence_f1=float(np.mean([result.sentence_f1 for result in results])),
        num_seeds=len(results),
    )


def _kept_tree(sentence: Bracketing, keep: Sequence[bool]) -> Tree | None:
    """The tree over the words that stay, without constituents that this leaves empty; None when no word stays."""
    spans = [span for span in sentence.spans if span.start < span.end]
    opening = iter([*spans, None])
    following = next(opening)
    top: list[Tree | str] = []
    stack: list[tuple[str, int, list[Tree | str]]] = []
    for position, word in enumerate(sentence.words):
        while following is not None and following.start == position:
            stack.append((following.label, following.end, []))
            following = next(opening)
        if keep[position]:
            (stack[-1][2] if stack else top).append(word)
        while stack and stack[-1][1] == position + 1:
            label, _, children = stack.pop()
            if children:
                (stack[-1][2] if stack else top).append(Tree(label, children))
    if len(top) == 1 and isinstance(top[0], Tree):
        return top[0]
    return Tree("", top) if top else None
