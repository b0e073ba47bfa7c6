"""Which way binary trees branch: shares of left and right splits (Table 4, Peng, Schwartz & Smith 2019)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch

from treelm.corpora.word_vocabulary import WordVocabulary
from treelm.errors import InputError
from treelm.models import system_class
from treelm.models.base import LanguageModel
from treelm.models.capabilities import Parser, has
from treelm.models.streams import StreamLM
from treelm.training.recipe import ModelConfig
from treelm.trees.tree import Tree

Counting = Literal["all", "longer"]
"""Splits that shares are of: all, or those of three words or more. Note 19 of the paper leaves splits of two words out,
but its row of gold trees fits only with them."""


@dataclass(frozen=True, kw_only=True)
class SplitShares:
    """Numbers of splits.

    A split is left if its right part alone is one word, and right if its left part alone is one word: this reading of
    the table is ours. All other splits are neither, among them those of two words (pairs).
    """

    num_left: int
    num_right: int
    num_pairs: int
    num_splits: int

    def percentages(self, counting: Counting) -> tuple[float, float]:
        """Left and right splits in percent of the splits that are counted; 0 where there are none."""
        count = max(self.num_splits - (self.num_pairs if counting == "longer" else 0), 1)
        return 100 * self.num_left / count, 100 * self.num_right / count


def split_shares(trees: Iterable[Tree]) -> SplitShares:
    """The splits of all constituents of binary trees. Raises ``ValueError`` for a constituent of other than two parts
    (binarise gold trees first; constituents of one word are no splits).
    """
    num_splits = num_pairs = num_left = num_right = 0
    for tree in trees:
        sizes = {id(node): span.end - span.start for node, span in zip(tree.constituents(), tree.spans(), strict=True)}
        for node in tree.constituents():
            if len(node.children) != 2 and sizes[id(node)] > 1:
                raise ValueError(f"constituent {node.label} has {len(node.children)} parts, not two")
            if sizes[id(node)] == 1:
                continue
            left, right = (1 if isinstance(child, str) else sizes[id(child)] for child in node.children)
            num_splits += 1
            num_pairs += left == right == 1
            num_left += left > right == 1
            num_right += right > left == 1
    return SplitShares(num_left=num_left, num_right=num_right, num_pairs=num_pairs, num_splits=num_splits)


def random_shares(
    build: Callable[[int], Parser], sentences: Sequence[Sequence[str]], *, num_seeds: int = 25
) -> Iterator[SplitShares]:
    """Yield the shares of models that have not been trained; ``build`` makes one from a seed (0, 1, ...)."""
    return (split_shares(build(seed).parse(sentences)) for seed in range(num_seeds))


def untrained(model: ModelConfig, sentences: Iterable[Sequence[str]]) -> Callable[[int], Parser]:
    """Give what builds the model of a recipe from a seed, with its initial weights and the words of these sentences.

    Raises ``InputError`` if its trees are none of splits in two, or when it is built, if it is given them.
    """
    system: Any = system_class(model.system)
    if not issubclass(system, StreamLM):
        raise _no_binary_trees(model.system, "[model]")
    vocabulary = WordVocabulary(sorted({word for words in sentences for word in words}))

    def build(seed: int) -> Parser:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return require_binary_trees(system(config=model.config, vocabulary=vocabulary).eval(), where="[model]")

    return build


def require_binary_trees(model: LanguageModel, *, where: str) -> Parser:
    """The model, if its trees are of splits in two. Raises ``InputError`` for others."""
    if not isinstance(model, StreamLM) or not has(model, Parser):
        raise _no_binary_trees(model.system, where)
    return model


def _no_binary_trees(system: str, where: str) -> InputError:
    remedy = "take one of palm whose attention is not given, of prpn or of on-lstm"
    return InputError(f"this {system} has no binary trees of its own", where=where, remedy=remedy)
