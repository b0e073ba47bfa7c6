"""The losses of a batch, computed in parts: shards, micro-batches, and halves of what does not fit into memory."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cache

import torch

from treelm.corpora.stream_batches import StreamBatch
from treelm.errors import InputError, is_out_of_memory
from treelm.models.base import LanguageModel, Losses
from treelm.models.layers.devices import device_of
from treelm.models.stream_outputs import RecurrentState
from treelm.models.streams import StreamLM
from treelm.training.config import TrainingConfig
from treelm.training.data import Batch, part_of
from treelm.training.metrics import LossSum
from treelm.training.numerics import low_precision

_logger = logging.getLogger(__name__)


ShardStates = dict[int, RecurrentState]
"""Hidden states of a stream's rows by shard, for the next segment; a process has those of its own shards."""


def losses_in_parts(
    model: LanguageModel,
    batch: Batch,
    config: TrainingConfig,
    *,
    shards: Mapping[int, slice],
    carried: ShardStates,
    draws: Callable[[int], AbstractContextManager[object]] = nullcontext,
    backward: Callable[[Losses, Batch], None] | None = None,
) -> tuple[LossSum, ShardStates]:
    """The losses of the rows of a batch that ``shards`` names, and the hidden states of a stream after them.

    Each shard is computed within its random ``draws``, and ``backward`` gets the losses of each part. When memory is
    exhausted, all is done again in parts of half the size. Raises ``InputError`` for a single row that does not fit
    into memory, and for a batch that does not and cannot be split.
    """
    size, device = config.micro_batch_size if backward else None, device_of(model)
    while True:
        if backward:
            model.zero_grad(set_to_none=True)
        loss, following, part = LossSum(), ShardStates(), batch
        losses: Losses | None = None
        try:
            for shard, rows in shards.items():
                with draws(shard):
                    states: list[RecurrentState] = []
                    for start in range(rows.start, rows.stop, size or len(batch)):
                        here = slice(start, min(start + (size or len(batch)), rows.stop))
                        part = part_of(batch, here, model.vocabulary.ends_word)
                        with low_precision(device, config):
                            if isinstance(part, StreamBatch):
                                assert isinstance(model, StreamLM)  # checked before training
                                own = slice(here.start - rows.start, here.stop - rows.start)
                                before = carried.get(shard)
                                before = before and {name: tensor[own] for name, tensor in before.items()}
                                losses, after = model.stream_losses(part, before)
                                states.append(after)
                            else:
                                losses = model.losses(part)
                        if backward:
                            backward(losses, part)
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


def join_rows(parts: Sequence[RecurrentState]) -> RecurrentState:
    """Join the hidden states of several parts' rows along the rows."""
    return parts[0] if len(parts) == 1 else {name: torch.cat([part[name] for part in parts]) for name in parts[0]}


def _half(part: Batch, *, splits: bool) -> int:
    """Half the size of a part that does not fit into memory."""
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    size = len(part)
    if size == 1 or not splits:
        what = "one sentence or row does" if size == 1 else f"a batch of {size}, which cannot be split, does"
        remedy = "lower batch_size, max_actions or bptt, or the sizes of [model]"
        raise InputError(f"{what} not fit into memory", where=part.names[0], remedy=remedy)
    _warn_of_memory(size, -(-size // 2))
    return -(-size // 2)


@cache
def _warn_of_memory(size: int, half: int) -> None:
    """Warn once for each size."""
    _logger.warning("out of memory with %d sentences or rows at once: computed in parts of %d", size, half)
