"""Which of a run's models is kept: that with the best loss on dev, or that whose trees agree best with dev's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

import torch

from treelm.corpora.data_config import DataConfig, locate_split
from treelm.corpora.readers import read_sentences
from treelm.errors import InputError
from treelm.models.base import SyntacticLM
from treelm.training.ranks import Ranks
from treelm.trees.span_counts import SpanCounts
from treelm.trees.tree import Tree

_SENTENCES = 64  # parsed together


@dataclass(frozen=True)
class DevTrees:
    """Gold trees of dev, in the words that the model reads."""

    trees: Sequence[Tree]

    @classmethod
    def read(cls, data: DataConfig) -> DevTrees:
        """The trees of the dev split, without sentences that cannot be read. Raises ``InputError`` without trees."""
        path, format = locate_split(data, "dev")
        sentences = read_sentences(path, **vars(data.read_options(format)), on_error=data.on_error, skipped=[])
        return cls([_tree(one.tree, one.where) for one in islice(sentences, data.max_sentences)])

    @torch.no_grad()
    def unlabeled_f1(self, model: SyntacticLM, ranks: Ranks | None = None) -> float:
        """Mean of the sentences' F1, 0..100, over spans of at least two words and less than the sentence, as a set.

        A sentence without such gold spans counts as 100, or as 0 if some are predicted, as in the protocols ``wsj10``
        and ``wsj40`` of the evaluation. Of several processes
        (``ranks``) each parses some. The model is in training mode afterwards.
        """
        model.eval()
        starts = range(0, len(self.trees), _SENTENCES)
        if ranks is None:
            figures = [figure for start in starts for figure in self._figures(model, start)]
        else:
            own = starts[ranks.rank :: ranks.number]
            parts = ranks.together(lambda: {start: self._figures(model, start) for start in own})
            by_start = {start: figures for part in parts for start, figures in part.items()}
            figures = [figure for start in starts for figure in by_start[start]]
        model.train()
        return sum(figures) / len(figures)

    def _figures(self, model: SyntacticLM, start: int) -> list[float]:
        """F1 of each sentence of a group, 0..100."""
        gold = self.trees[start : start + _SENTENCES]
        parsed = model.parse([tree.words() for tree in gold])
        pairs = [(_inner_spans(one), _inner_spans(found)) for one, found in zip(gold, parsed, strict=True)]
        return [SpanCounts(matched=len(a & b), gold=len(a), predicted=len(b)).f1 for a, b in pairs]


def _inner_spans(tree: Tree) -> set[tuple[int, int]]:
    spans = tree.spans()
    return {(start, end) for _, start, end in spans if 1 < end - start < spans[0].end}


def _tree(tree: Tree | None, where: str) -> Tree:
    if tree is None:
        remedy = 'set select_by = "loss", or give dev data with trees'
        raise InputError(
            'a dev sentence without a tree, which select_by = "unlabeled_f1" needs', where=where, remedy=remedy
        )
    return tree
