"""The losses of a batch, computed at once or in parts that fit into memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from lightning_fabric import Fabric

from treelm.corpora.stream_batches import StreamBatch
from treelm.errors import InputError, is_out_of_memory
from treelm.models.base import Losses, SyntacticLM
from treelm.models.readings import Carried
from treelm.models.streams import StreamLM
from treelm.training.config import TrainingConfig
from treelm.training.data import Batch, part_of
from treelm.training.memory import PartTooLarge
from treelm.training.numerics import low_precision


def compute_in_parts(
    fabric: Fabric,
    model: SyntacticLM,
    batch: Batch,
    carried: Carried | None,
    config: TrainingConfig,
    *,
    size: int | None,
    take: Callable[[Losses, Batch], None],
) -> Carried | None:
    """Compute a batch in parts of ``size`` sentences or rows (None: at once), and ``take`` the losses of each.

    Returns what the rows of a stream carry on. Raises ``PartTooLarge`` when memory is exhausted, and by nothing else.
    """
    size = len(batch) if size is None else size
    following: list[Carried] = []
    for start in range(0, len(batch), size):
        rows = slice(start, min(start + size, len(batch)))
        part = part_of(batch, rows, model.vocabulary.ends_word)
        before = None if carried is None else {name: tensor[rows] for name, tensor in carried.items()}
        after = _compute_part(fabric, model, part, before, config, take)
        if after is not None:
            following.append(after)
    return join_rows(following)


def _compute_part(
    fabric: Fabric,
    model: SyntacticLM,
    part: Batch,
    carried: Carried | None,
    config: TrainingConfig,
    take: Callable[[Losses, Batch], None],
) -> Carried | None:
    try:
        with low_precision(fabric, config):
            losses, carried = compute_losses(model, part, carried)
        take(losses, part)
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
    else:
        return carried
    raise PartTooLarge(len(part), part.names[0])


def join_rows(parts: Sequence[Carried]) -> Carried | None:
    """What the rows of several parts carry, in a row; None for no parts."""
    if len(parts) < 2:
        return parts[0] if parts else None
    return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}


def compute_losses(model: SyntacticLM, batch: Batch, carried: Carried | None) -> tuple[Losses, Carried | None]:
    """The losses of sentences, or of the next segment of a stream with what it carries on."""
    if not isinstance(batch, StreamBatch):
        return model.losses(batch), carried
    if not isinstance(model, StreamLM):
        remedy = 'set batches = "sentences"'
        raise InputError(f"{model.system} reads whole sentences, not streams", where="[training]", remedy=remedy)
    return model.stream_losses(batch, carried)
