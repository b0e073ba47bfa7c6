"""The shape of trees: which way they split, and how deep they are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import get_args

from treelm.corpora.data_config import DataConfig
from treelm.evaluation.split_shares import (
    Counting,
    SplitShares,
    random_shares,
    require_binary_trees,
    split_shares,
    untrained,
)
from treelm.evaluation.tree_depth import slots_needed
from treelm.papers.data import DataRoot
from treelm.papers.measures.base import Measured, OnTreebank, Subject, gold_tree
from treelm.training.recipe import load_recipe
from treelm.trees.transforms import binarise_left, binarise_right, collapse_unaries
from treelm.trees.tree import Tree

_BINARISED: dict[str, Callable[[Tree], Tree]] = {
    "gold trees, made binary from the right": binarise_right,
    "gold trees, made binary from the left": binarise_left,
}
_DRAWN = "networks before training"


@dataclass(frozen=True, kw_only=True)
class Splits(OnTreebank):
    """Left and right splits of binary trees in percent of all splits, and of those of three words or more.

    Sentences have ``words`` words (fewest, most). Baselines are gold trees made binary, and the trees of a recipe's
    network as it is drawn, a value for each of ``seeds``.
    """

    words: tuple[int, int] = (3, 40)
    recipe: str = ""
    settings: tuple[str, ...] = ()
    seeds: int = 25

    def metrics(self) -> Sequence[str]:
        """Shares by side and counting."""
        return [f"{side}, {counting}" for counting in get_args(Counting) for side in ("left", "right")]

    def baselines(self) -> Sequence[str]:
        """Gold trees, and networks before training if a recipe is named."""
        return (*_BINARISED, *((_DRAWN,) if self.recipe else ()))

    def trees(self, config: DataConfig) -> list[Tree]:
        """The gold trees of sentences that are neither short nor long."""
        fewest, most = self.words
        unlimited = replace(self, max_sentences=None).sentences(config)
        fitting = [one for one in unlimited if fewest <= len(one.words) <= most]
        return [gold_tree(one) for one in fitting[: self.max_sentences]]

    def of_run(self, subject: Subject) -> Measured:
        """Count the splits of the run's trees."""
        lm = require_binary_trees(subject.model({}), where=str(subject.run))
        trees = self.trees(self.config(subject.recipe.data, subject.root))
        found = _shares([split_shares(lm.parse([tree.words() for tree in trees]))])
        return Measured(values={name: value for name, (value,) in found.items()})

    def of_data(self, root: DataRoot, own: str) -> Measured:
        """Count the splits of gold trees and of networks before training."""
        config = replace(self, data=self.data or own).config(DataConfig(), root)
        trees = self.trees(config)
        found = {
            name: _shares([split_shares(binarise(collapse_unaries(tree)) for tree in trees)])
            for name, binarise in _BINARISED.items()
        }
        if self.recipe:
            sentences = [tree.words() for tree in trees]
            build = untrained(load_recipe(self.recipe, self.settings).model, sentences)
            found[_DRAWN] = _shares(list(random_shares(build, sentences, num_seeds=self.seeds)))
        return Measured(baselines=found, notes=self.provenance(root, own, self.files(config)))


@dataclass(frozen=True, kw_only=True)
class Depth(OnTreebank):
    """Slots that a memory needs for gold trees; of the data alone."""

    slots: int = 15

    def metrics(self) -> Sequence[str]:
        """Mean and largest number of slots a tree, and trees that need more than ``slots`` in percent."""
        return ("slots_mean", "slots_max", "percent_deeper", "sentences")

    def baselines(self) -> Sequence[str]:
        """Gold trees."""
        return ("gold trees",)

    def of_run(self, subject: Subject) -> Measured:
        """Nothing can be measured."""
        return Measured()

    def of_data(self, root: DataRoot, own: str) -> Measured:
        """Count the slots of all trees."""
        config = replace(self, data=self.data or own).config(DataConfig(), root)
        needed = [slots_needed(gold_tree(one)) for one in self.sentences(config)]
        found = {
            "slots_mean": fmean(needed),
            "slots_max": float(max(needed)),
            "percent_deeper": 100 * fmean(count > self.slots for count in needed),
            "sentences": float(len(needed)),
        }
        values: dict[str, tuple[float, ...]] = {name: (value,) for name, value in found.items()}
        return Measured(baselines={"gold trees": values}, notes=self.provenance(root, own, self.files(config)))


def _shares(found: Sequence[SplitShares]) -> dict[str, tuple[float, ...]]:
    """Shares by metric, a value for each set of trees."""
    shares: dict[str, tuple[float, ...]] = {}
    for counting in get_args(Counting):
        sides = zip(*(one.percentages(counting) for one in found), strict=True)
        shares |= {f"{side}, {counting}": values for side, values in zip(("left", "right"), sides, strict=True)}
    return shares
