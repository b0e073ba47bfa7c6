"""One pass over dev."""

from __future__ import annotations

from collections.abc import Iterable
from operator import itemgetter

import torch
from lightning_fabric import Fabric

from treelm.corpora.stream_batches import StreamBatch
from treelm.models.base import SyntacticLM
from treelm.models.readings import Carried
from treelm.training.config import TrainingConfig
from treelm.training.data import Batch, part_of, shard_rows
from treelm.training.memory import within_memory
from treelm.training.parts import compute_in_parts
from treelm.training.ranks import Ranks
from treelm.training.updates import LossSum, sum_of


@torch.no_grad()
def evaluate(
    fabric: Fabric,
    model: SyntacticLM,
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
    fabric: Fabric, model: SyntacticLM, batches: Iterable[Batch], config: TrainingConfig, ranks: Ranks
) -> list[tuple[int, LossSum]]:
    """The losses of the batches that are this process', with their numbers."""
    found: list[tuple[int, LossSum]] = []
    carried: Carried | None = None
    for number, batch in enumerate(batches):
        own = batch
        if isinstance(batch, StreamBatch):
            rows = shard_rows(len(batch), ranks.rank, ranks.number)
            if rows.start == rows.stop:
                continue
            own = part_of(batch, rows, model.vocabulary.ends_word)
        elif number % ranks.number != ranks.rank:
            continue
        loss, carried = _score(fabric, model, own, carried, config)
        found.append((number, loss))
    return found


def _score(
    fabric: Fabric, model: SyntacticLM, batch: Batch, carried: Carried | None, config: TrainingConfig
) -> tuple[LossSum, Carried | None]:
    def compute(size: int | None) -> tuple[LossSum, Carried | None]:
        loss = LossSum()
        after = compute_in_parts(
            fabric, model, batch, carried, config, size=size, take=lambda losses, part: loss.add(losses)
        )
        return loss, after

    return within_memory(compute, None)
