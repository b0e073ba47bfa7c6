"""Evaluation on dev during training: the loss, and the unlabelled F1 of the model's trees against dev's."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from operator import itemgetter

import torch
from lightning_fabric import Fabric

from treelm.corpora.data_config import DataConfig, locate_split
from treelm.corpora.readers import read_sentences
from treelm.corpora.stream_batches import StreamBatch
from treelm.errors import InputError
from treelm.models.base import LanguageModel
from treelm.training.config import TrainingConfig
from treelm.training.data import Batch, shard_rows
from treelm.training.metrics import LossSum, sum_of
from treelm.training.parts import ShardStates, compute_in_parts
from treelm.training.ranks import Ranks
from treelm.trees.span_counts import inner_f1
from treelm.trees.transforms import UNPARSED
from treelm.trees.tree import Tree

_SENTENCES = 64  # parsed together


@torch.no_grad()
def evaluate(
    fabric: Fabric,
    model: LanguageModel,
    batches: Iterable[Batch],
    config: TrainingConfig,
    *,
    ranks: Ranks | None = None,
) -> LossSum:
    """The model's own loss on dev, without dropout; in a stream, every segment goes on where the one before stopped.

    Of several processes each scores some of the batches, or of the rows of a stream; batches are added up in their
    order, so the sum does not depend on who scored them. The model is in training mode again afterwards.
    """
    ranks = ranks or Ranks(fabric)
    model.eval()
    numbered = [
        pair for part in ranks.together(lambda: _own_losses(fabric, model, batches, config, ranks)) for pair in part
    ]
    model.train()
    return sum_of(loss for _, loss in sorted(numbered, key=itemgetter(0)))


def _own_losses(
    fabric: Fabric, model: LanguageModel, batches: Iterable[Batch], config: TrainingConfig, ranks: Ranks
) -> list[tuple[int, LossSum]]:
    """The losses of the batches that are this process', with their numbers."""
    found: list[tuple[int, LossSum]] = []
    carried: ShardStates = {}
    for number, batch in enumerate(batches):
        rows = slice(0, len(batch))
        if isinstance(batch, StreamBatch):
            rows = shard_rows(len(batch), ranks.rank, ranks.number)
            if rows.start == rows.stop:
                continue
        elif number % ranks.number != ranks.rank:
            continue
        loss, carried = compute_in_parts(fabric, model, batch, config, shards={0: rows}, carried=carried)
        found.append((number, loss))
    return found


@dataclass(frozen=True)
class DevTrees:
    """Gold trees of dev, in the words that the model reads."""

    trees: Sequence[Tree]

    @classmethod
    def read(cls, data: DataConfig) -> DevTrees:
        """The trees of the dev split, without sentences that cannot be read. Raises ``InputError`` without trees."""
        path, format = locate_split(data, "dev")
        sentences = read_sentences(path, **vars(data.read_options(format)), on_error=data.on_error, skipped=[])
        trees = [_tree(one.tree, one.where) for one in islice(sentences, data.max_sentences)]
        parsed = [tree for tree in trees if tree.label != UNPARSED]
        if trees and not parsed:
            _tree(None, str(path))
        return cls(parsed)

    @torch.no_grad()
    def unlabeled_f1(self, model: LanguageModel, ranks: Ranks | None = None) -> float:
        """Mean of the sentences' F1, 0..100 (``inner_f1``). Of several processes (``ranks``) each parses some.

        The model is in training mode afterwards.
        """
        model.eval()
        starts = range(0, len(self.trees), _SENTENCES)
        if ranks is None:
            scores = [f1 for start in starts for f1 in self._sentence_f1(model, start)]
        else:
            own = starts[ranks.rank :: ranks.number]
            parts = ranks.together(lambda: {start: self._sentence_f1(model, start) for start in own})
            by_start = {start: found for part in parts for start, found in part.items()}
            scores = [f1 for start in starts for f1 in by_start[start]]
        model.train()
        return sum(scores) / len(scores)

    def _sentence_f1(self, model: LanguageModel, start: int) -> list[float]:
        """F1 of each sentence of a group, 0..100."""
        gold = self.trees[start : start + _SENTENCES]
        parsed = model.parse([tree.words() for tree in gold])
        return [inner_f1(one, found) for one, found in zip(gold, parsed, strict=True)]


def _tree(tree: Tree | None, where: str) -> Tree:
    if tree is None:
        remedy = 'set select_by = "loss", or give dev data with trees'
        raise InputError(
            'a dev sentence without a tree, which select_by = "unlabeled_f1" needs', where=where, remedy=remedy
        )
    return tree
