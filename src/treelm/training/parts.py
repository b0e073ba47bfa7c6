"""The losses of a batch, computed in parts: shards, micro-batches, and halves of what does not fit into memory."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cache

import torch
from lightning_fabric import Fabric

from treelm.corpora.stream_batches import StreamBatch
from treelm.errors import InputError, is_out_of_memory
from treelm.models.base import LanguageModel, Losses
from treelm.models.readings import Carried
from treelm.models.streams import StreamLM
from treelm.training.config import TrainingConfig
from treelm.training.data import Batch, part_of
from treelm.training.metrics import LossSum
from treelm.training.numerics import low_precision

ShardStates = dict[int, Carried]
"""Hidden states of a stream's rows by shard, for the next segment; a process has those of its own shards."""
_logger = logging.getLogger(__name__)


def compute_in_parts(
    fabric: Fabric,
    model: LanguageModel,
    batch: Batch,
    config: TrainingConfig,
    *,
    shards: Mapping[int, slice],
    carried: ShardStates,
    size: int | None = None,
    begin: Callable[[], None] = lambda: None,
    random_numbers: Callable[[int], AbstractContextManager[object]] = nullcontext,
    take: Callable[[Losses, Batch], None] = lambda losses, part: None,
) -> tuple[LossSum, ShardStates]:
    """Compute the rows of a batch that ``shards`` names, ``size`` sentences or rows at once (None: a shard at once).

    Each shard is computed within its ``random_numbers``, and ``take`` gets the losses of each part. When memory is
    exhausted everything is done again from ``begin`` on, in parts of half the size. Returns the sum of the losses and
    the hidden states of a stream's rows. Raises ``InputError`` for a single row that does not fit into memory, for a
    batch that does not and cannot be split, and for a stream that the system does not read.
    """
    while True:
        begin()
        loss, following, part = LossSum(), ShardStates(), batch
        losses: Losses | None = None
        try:
            for shard, rows in shards.items():
                with random_numbers(shard):
                    states: list[Carried] = []
                    for start in range(rows.start, rows.stop, size or len(batch)):
                        here = slice(start, min(start + (size or len(batch)), rows.stop))
                        part = part_of(batch, here, model.vocabulary.ends_word)
                        with low_precision(fabric, config):
                            if isinstance(part, StreamBatch):
                                before = _rows(carried.get(shard), rows, here)
                                losses, after = _stream_model(model).stream_losses(part, before)
                                states.append(after)
                            else:
                                losses = model.losses(part)
                        take(losses, part)
                        loss.add(losses)
                        losses = None
                if states:
                    following[shard] = join_rows(states)
            return loss, following
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
        losses = None  # now that the exception is gone too, nothing holds on to what was computed
        size = _half(part, splits=not (model.training and model.couples_sentences))


def _rows(carried: Carried | None, rows: slice, here: slice) -> Carried | None:
    """Hidden states that some rows of a batch begin with, cut from those of their shard."""
    own = slice(here.start - rows.start, here.stop - rows.start)
    return None if carried is None else {name: tensor[own] for name, tensor in carried.items()}


def join_rows(parts: Sequence[Carried]) -> Carried:
    """Join the hidden states of several parts' rows along the rows."""
    return parts[0] if len(parts) == 1 else {name: torch.cat([part[name] for part in parts]) for name in parts[0]}


def _stream_model(model: LanguageModel) -> StreamLM:
    if not isinstance(model, StreamLM):
        remedy = 'set batches = "sentences"'
        raise InputError(f"{model.system} reads whole sentences, not streams", where="[training]", remedy=remedy)
    return model


def _half(part: Batch, *, splits: bool) -> int:
    """Half the size of a part that does not fit into memory."""
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    size = len(part)
    if size == 1 or not splits:
        what = "one sentence or row does" if size == 1 else f"a batch of {size}, which cannot be split, does"
        remedy = "lower batch_size, max_actions or bptt, or the sizes of [model]"
        raise InputError(f"{what} not fit into memory", where=part.names[0], remedy=remedy)
    _report(size, -(-size // 2))
    return -(-size // 2)


@cache
def _report(size: int, half: int) -> None:
    """Warn once for each size."""
    _logger.warning("out of memory with %d sentences or rows at once: computed in parts of %d", size, half)
