"""Shapes of trees: which way binary ones branch (Table 4, Peng, Schwartz & Smith 2019), and how deep they are for a
reader that goes from left to right (Shen et al. 2021).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from statistics import fmean, median
from typing import Any

import torch

from treelm.corpora.data_config import DataConfig
from treelm.corpora.word_vocabulary import WordVocabulary
from treelm.errors import InputError
from treelm.evaluation.evalb_files import gold_tree
from treelm.models import system_class
from treelm.models.base import LanguageModel
from treelm.models.capabilities import Parser, has
from treelm.models.search.options import SearchOptions
from treelm.models.streams import StreamLM
from treelm.papers.metrics.base import Baselines, Measured, OnTreebank, Subject
from treelm.training.recipe import ModelConfig, load_recipe
from treelm.trees.transforms import binarise_left, binarise_right, collapse_unaries
from treelm.trees.tree import Tree


def split_shares(trees: Iterable[Tree]) -> dict[str, float]:
    """Left and right splits of binary trees in percent of all splits, and of those of three words or more.

    A split is left if its right part alone is one word, and right if its left part alone is. Splits of two words are
    neither: note 19 of the paper leaves them out, but its row of gold trees fits only with them. Raises ``ValueError``
    for constituents of several words that have other than two parts.
    """
    num_splits = num_pairs = num_left = num_right = 0
    for tree in trees:
        sizes = {id(node): span.end - span.start for node, span in zip(tree.constituents(), tree.spans(), strict=True)}
        for node in tree.constituents():
            if sizes[id(node)] == 1:
                continue
            if len(node.children) != 2:
                raise ValueError(f"constituent {node.label} has {len(node.children)} parts, not two")
            left, right = (1 if isinstance(child, str) else sizes[id(child)] for child in node.children)
            num_splits += 1
            num_pairs += left == right == 1
            num_left += left > right == 1
            num_right += right > left == 1
    return {
        f"{side}, {counting}": 100 * number / max(total, 1)
        for counting, total in (("all", num_splits), ("longer", num_splits - num_pairs))
        for side, number in (("left", num_left), ("right", num_right))
    }


def untrained(model: ModelConfig, sentences: Iterable[Iterable[str]]) -> Callable[[int], Parser]:
    """Return a function that builds the untrained model of a recipe from a seed, with the words of ``sentences``.

    That function raises ``InputError`` if the model has no binary trees of its own.
    """
    vocabulary = WordVocabulary(sorted({word for words in sentences for word in words}))
    system: Any = system_class(model.system)

    def build(seed: int) -> Parser:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            drawn = system(config=model.config, vocabulary=vocabulary, labels=("X",)).eval()
        return _binary_parser(drawn, where="[model]")

    return build


def _binary_parser(model: LanguageModel, *, where: str) -> Parser:
    """Return the model as a parser. Raises ``InputError`` if it has no binary trees of its own."""
    if not isinstance(model, StreamLM) or not has(model, Parser):
        remedy = "take one of palm whose attention is not given, of prpn or of on-lstm"
        raise InputError(f"this {model.system} has no binary trees of its own", where=where, remedy=remedy)
    return model


@dataclass(frozen=True, kw_only=True)
class Splits(OnTreebank):
    """Left and right splits of binary trees in percent of all splits, and of those of three words or more.

    Sentences have ``words`` words (fewest, most). Baselines are gold trees made binary; with a ``recipe`` the trees of
    its network as it is drawn instead, a value for each of ``seeds``.
    """

    words: tuple[int, int] = (3, 40)
    recipe: str = ""
    settings: tuple[str, ...] = ()
    seeds: int = 25

    def trees(self, config: DataConfig) -> list[Tree]:
        """The gold trees of sentences that are neither short nor long."""
        fewest, most = self.words
        unlimited = replace(self, max_sentences=None).sentences(config)
        fitting = [one for one in unlimited if fewest <= len(one.words) <= most]
        return [gold_tree(one) for one in fitting[: self.max_sentences]]

    def of_run(self, subject: Subject) -> Measured:
        """Count the splits of the run's trees."""
        parser = _binary_parser(subject.model(SearchOptions()), where=str(subject.run))
        trees = self.trees(self.config(subject.recipe.data, subject.root))
        return Measured(values=split_shares(parser.parse([tree.words() for tree in trees])))

    def of_treebank(self, config: DataConfig) -> Baselines:
        """Count the splits of networks before training, with a recipe; without one, those of gold trees."""
        trees = self.trees(config)
        if self.recipe:
            sentences = [tree.words() for tree in trees]
            build = untrained(load_recipe(self.recipe, self.settings).model, sentences)
            drawn = [split_shares(build(seed).parse(sentences)) for seed in range(self.seeds)]
            found = {"networks before training": drawn}
        else:
            collapsed = [collapse_unaries(tree) for tree in trees]
            found = {
                "gold trees, made binary from the right": [split_shares(map(binarise_right, collapsed))],
                "gold trees, made binary from the left": [split_shares(map(binarise_left, collapsed))],
            }
        return {name: {one: tuple(draw[one] for draw in draws) for one in draws[0]} for name, draws in found.items()}


def slots_needed(tree: Tree) -> int:
    """Slots of a memory in which every constituent that is open at a word has one, the root's among them.

    A word needs one more than the first word of the smallest constituent that holds it, but not as its first word; the
    boundary before the sentence needs none. Unary chains and labels do not matter.
    """
    top = collapse_unaries(tree)
    before: dict[int, int] = {}  # first word of a child that is not the first one -> first word of its parent
    for node, span in zip(top.constituents(), top.spans(), strict=True):
        position = span.start
        for child in node.children:
            if position > span.start and node is not top:
                before[position] = span.start
            position += 1 if isinstance(child, str) else len(child.words())
    depth: list[int] = []
    for position in range(len(top.words())):
        depth.append(depth[before[position]] + 1 if position in before else 1)
    return max(depth, default=0)


@dataclass(frozen=True, kw_only=True)
class Depth(OnTreebank):
    """Depth of gold trees, unary chains as one constituent, and slots that a memory needs for them, of the data alone;
    the percentage of trees that need more than ``slots``.
    """

    slots: int = 15

    def of_treebank(self, config: DataConfig) -> Baselines:
        """Measure all trees."""
        trees = [collapse_unaries(gold_tree(one)) for one in self.sentences(config)]
        needed, depths = [*map(slots_needed, trees)], [tree.height for tree in trees]
        values = {
            "depth_max": float(max(depths)),
            "depth_median": float(median(depths)),
            "depth_mean": fmean(depths),
            "slots_mean": fmean(needed),
            "slots_max": float(max(needed)),
            "percent_deeper": 100 * fmean(count > self.slots for count in needed),
        }
        return {"gold trees": {name: (value,) for name, value in values.items()}}
