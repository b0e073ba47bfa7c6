"""Which way binary trees branch: shares of left and right splits (Table 4, Peng, Schwartz & Smith 2019)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import mean, stdev

from treelm.models.base import SyntacticLM
from treelm.trees.tree import Tree


@dataclass(frozen=True, kw_only=True)
class SplitShares:
    """Percentages of all splits; those that are neither make up the rest.

    A split is left if its right part alone is one word, and right if its left part alone is one word. This reading of
    the table is ours: of those tried, it brought gold trees (binarised to the right) nearest to the published figures.
    """

    left: float
    right: float
    num_splits: int


def split_shares(trees: Iterable[Tree]) -> SplitShares:
    """The shares over all constituents of binary trees. Raises ``ValueError`` for a constituent of other than two parts
    (binarise gold trees first; constituents of one word are no splits).
    """
    num_splits = num_left = num_right = 0
    for tree in trees:
        sizes = {id(node): span.end - span.start for node, span in zip(tree.constituents(), tree.spans(), strict=True)}
        for node in tree.constituents():
            if len(node.children) != 2 and sizes[id(node)] > 1:
                raise ValueError(f"constituent {node.label} has {len(node.children)} parts, not two")
            if sizes[id(node)] == 1:
                continue
            left, right = (1 if isinstance(child, str) else sizes[id(child)] for child in node.children)
            num_splits += 1
            num_left += left > right == 1
            num_right += right > left == 1
    count = max(num_splits, 1)
    return SplitShares(left=100 * num_left / count, right=100 * num_right / count, num_splits=num_splits)


@dataclass(frozen=True, kw_only=True)
class SharesOverSeeds:
    """Mean and standard deviation over random initialisations."""

    left: tuple[float, float]
    right: tuple[float, float]
    num_seeds: int

    def __str__(self) -> str:
        """Write means and spreads, in percent."""
        left, right = (f"{middle:.1f} +- {spread:.1f}" for middle, spread in (self.left, self.right))
        return f"left {left} / right {right} over {self.num_seeds} seeds"


def random_shares(
    build: Callable[[int], SyntacticLM], sentences: Sequence[Sequence[str]], *, num_seeds: int = 25
) -> SharesOverSeeds:
    """Shares of models that have not been trained; ``build`` makes one from a seed. Needs two seeds or more."""
    shares = [split_shares(build(seed).parse(sentences)) for seed in range(num_seeds)]
    left, right = ([one.left for one in shares], [one.right for one in shares])
    return SharesOverSeeds(left=(mean(left), stdev(left)), right=(mean(right), stdev(right)), num_seeds=num_seeds)
