"""The losses of a batch, and what follows from them: an update of the weights, and the scores of dev.

A batch is computed in shards, in micro-batches, and in halves of what does not fit into memory.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch.optim import Optimizer

from treelm.corpora.arrays import offsets_of
from treelm.corpora.batches import EpochBatches
from treelm.corpora.encoding import SentenceBatch
from treelm.corpora.stream_batches import StreamBatch
from treelm.errors import InputError, is_out_of_memory
from treelm.models.base import LanguageModel, Loss, Losses
from treelm.models.capabilities import CouplesSentences, Parser, PlansBatches, has, require
from treelm.models.layers.devices import device_of
from treelm.models.layers.dropout import shared_draws
from treelm.models.layers.few_calls import fused_kernels
from treelm.models.layers.graphs import cuda_graphs
from treelm.models.stream_outputs import RecurrentState
from treelm.models.streams import StreamLM
from treelm.training.config import TrainingConfig
from treelm.training.distributed import ProcessGroup
from treelm.training.metrics import LossSum
from treelm.training.numerics import low_precision, seed_shard
from treelm.training.outcomes import NonFiniteError
from treelm.trees.span_counts import inner_f1
from treelm.trees.tree import Tree

Batch = SentenceBatch | StreamBatch


def read_epoch(batches: EpochBatches[Any, Any]) -> Iterator[tuple[Batch, dict[str, Any], Batch | None]]:
    """The rest of an epoch: each batch, the position behind it, and the next batch, which is None where the epoch ends.

    Raises ``InputError`` if there is no batch.
    """
    iterator = iter(batches)
    batch = next(iterator, None)
    if batch is None:
        remedy = "check [data], and max_length and first_max_length in [batches]: is every sentence left out?"
        raise InputError("the training data gives no batches", remedy=remedy)
    while batch is not None:
        position = batches.state()
        following = next(iterator, None)
        yield batch, batches.state() if following is None else position, following
        batch = following


def part_of(batch: Batch, rows: slice, ends_word: NDArray[np.bool_]) -> Batch:
    """Some sentences of a batch, or some rows of a segment. ``ends_word`` is the vocabulary's, to count words by."""
    if rows == slice(0, len(batch)):
        return batch
    return _rows(batch, rows, ends_word) if isinstance(batch, StreamBatch) else _sentences(batch, rows)


def shard_rows(num_rows: int, shard: int, num_shards: int) -> slice:
    """The rows of one of so many parts, as equal as may be."""
    return slice(num_rows * shard // num_shards, num_rows * (shard + 1) // num_shards)


def _sentences(batch: SentenceBatch, part: slice) -> SentenceBatch:
    changes: dict[str, Any] = {"num_words": batch.num_words[part], "names": batch.names[part]}
    for name, offsets_name in (
        ("tokens", "token_offsets"),
        ("actions", "action_offsets"),
        ("preceding", "preceding_offsets"),
    ):
        values, offsets = getattr(batch, name), getattr(batch, offsets_name)
        if values is not None:
            changes[name], changes[offsets_name] = _cut(values, offsets, part)
    if batch.tags is not None:
        changes["tags"], _ = _cut(batch.tags, offsets_of(batch.num_words), part)
    return replace(batch, **changes)


def _rows(batch: StreamBatch, part: slice, ends_word: NDArray[np.bool_]) -> StreamBatch:
    targets = np.ascontiguousarray(batch.targets[:, part])
    mask = None if batch.mask is None else np.ascontiguousarray(batch.mask[:, part])
    counted = targets if mask is None else targets[mask]
    constituents = batch.constituents
    if constituents is not None:
        inside = (constituents[:, 1] >= part.start) & (constituents[:, 1] < part.stop)
        constituents = constituents[inside] - np.array([0, part.start, 0])
    return replace(
        batch,
        inputs=np.ascontiguousarray(batch.inputs[:, part]),
        targets=targets,
        mask=mask,
        num_words=int(np.append(ends_word, False)[counted].sum()),
        num_sentences=int((counted == len(ends_word)).sum()),
        positions=batch.positions[part],
        constituents=constituents,
        names=batch.names[part],
    )


def _cut(
    values: NDArray[np.int64], offsets: NDArray[np.int64], part: slice
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    own = offsets[part.start : part.stop + 1]
    return values[own[0] : own[-1]], own - own[0]


_PARSED_TOGETHER = 64  # sentences of dev
_logger = logging.getLogger(__name__)

ShardStates = dict[int, RecurrentState]
"""Hidden states of a stream's rows by shard, for the next segment; a process has those of its own shards."""


class Update(NamedTuple):
    """Results of one update."""

    loss: LossSum  # of this process' shards
    gradient_norm: float  # before clipping
    carried: ShardStates  # hidden states of a stream, for the next segment


def update_weights(
    model: LanguageModel,
    optimizer: Optimizer,
    batch: Batch,
    config: TrainingConfig,
    step: int,
    group: ProcessGroup,
    carried: ShardStates,
    *,
    next_batch: Batch | None = None,
) -> Update:
    """Change the weights by the gradient of one batch.

    The loss is the sum over the batch divided by its words or sentences, whatever the micro-batches, or in a stream by
    the targets of the segment. Of several processes each computes some shards of the batch. Nothing is read back from
    the device before the end, when losses and norm arrive at once, and ``next_batch`` is planned meanwhile. The
    optimiser must therefore be a fused one, which learns on the device whether to leave the weights alone.

    Raises ``NonFiniteError``, with the weights unchanged, when loss or gradient is not finite.
    """
    if isinstance(batch, StreamBatch):
        divisor = batch.num_targets
    else:
        divisor = int(batch.num_words.sum()) if config.normalise_loss == "word" else len(batch)
    is_whole = config.shards is None and group.size == 1  # then random numbers go on from those of the step before
    shards = {shard: rows for shard, rows in own_shards(len(batch), config, group).items() if rows.start < rows.stop}
    with cuda_graphs(wanted=config.cuda_graphs), fused_kernels(config.fused_kernels), group.raise_together():
        parts, following = losses_in_parts(
            model, batch, config, shards, carried, divisor=divisor, step=None if is_whole else step
        )
    group.sum_gradients(model)
    parameters = [parameter for one in optimizer.param_groups for parameter in one["params"]]
    largest = math.inf if config.gradient_clip is None else config.gradient_clip
    norm = torch.nn.utils.clip_grad_norm_(parameters, largest)
    numbers = torch.stack([norm.double(), *(losses.total.detach().double() for losses, _ in parts)])
    optimizer.found_inf = numbers.isfinite().all().logical_not().float()  # type: ignore[attr-defined]
    optimizer.step()
    is_one = is_whole and config.micro_batch_size is None
    if next_batch is not None and is_one and isinstance(model, PlansBatches):
        with cuda_graphs(wanted=config.cuda_graphs), fused_kernels(config.fused_kernels):
            model.plan_ahead(next_batch)
    with group.raise_together():
        sums, (found_norm,) = LossSum.read([losses for losses, _ in parts], norm)
        for one, (_, names) in zip(sums, parts, strict=True):
            if not math.isfinite(one.total):
                raise NonFiniteError(f"the loss is {one.total}", step=step, names=names)
        if not math.isfinite(found_norm):
            raise NonFiniteError(f"the norm of the gradient is {found_norm}", step=step, names=batch.names)
    return Update(LossSum.sum(sums), found_norm, following)


def own_shards(num_rows: int, config: TrainingConfig, group: ProcessGroup) -> dict[int, slice]:
    """Number and rows of the parts of a batch that this process computes."""
    num_shards = config.shards or group.size
    return {shard: shard_rows(num_rows, shard, num_shards) for shard in range(group.rank, num_shards, group.size)}


def losses_in_parts(
    model: LanguageModel,
    batch: Batch,
    config: TrainingConfig,
    shards: Mapping[int, slice],
    carried: ShardStates,
    *,
    divisor: int | None = None,
    step: int | None = None,
) -> tuple[list[tuple[Losses, tuple[str, ...]]], ShardStates]:
    """The losses of the rows of a batch that ``shards`` names, by part, with the names of the rows; and hidden states.

    With a ``divisor``, gradients of the losses divided by it are added up in the parameters; the losses that are
    returned have no gradient. With a ``step``, each shard has random numbers of its own, which follow from seed, step
    and shard. The hidden states, by shard, are those of a stream after the batch; ``carried`` are those before it. When
    memory is exhausted, all is computed again in parts of half the size.

    Raises ``InputError`` for a single row that does not fit into memory, and for a batch that does not and cannot be
    split.
    """
    size = None if divisor is None else config.micro_batch_size
    device, place = device_of(model), next((one.device for one in model.parameters()), torch.device("cpu"))
    while True:
        if divisor is not None:
            model.zero_grad(set_to_none=True)
        found, following, part = list[tuple[Losses, tuple[str, ...]]](), ShardStates(), batch
        losses: Losses | None = None
        try:
            for shard, rows in shards.items():
                generator = None if step is None else seed_shard(config.seed, step, shard, place)
                with nullcontext() if generator is None else shared_draws(generator):
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
                        if divisor is not None:
                            (losses.total / divisor).backward()  # type: ignore[no-untyped-call]
                        found.append((without_gradient(losses), part.names))
                        losses = None
                if states:
                    following[shard] = join_rows(states)
            return found, following
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
        losses = None  # now that the exception is gone too, nothing holds on to what was computed
        size = _half(part, splits=not (model.training and has(model, CouplesSentences)))


def without_gradient(losses: Losses) -> Losses:
    """The same numbers, which hold on to nothing that was computed."""
    terms = {name: Loss(sum=term.sum.detach(), count=term.count) for name, term in losses.terms.items()}
    return replace(losses, terms=terms, total=losses.total.detach())


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


@torch.no_grad()
def dev_loss(model: LanguageModel, batches: Iterable[Batch], config: TrainingConfig, group: ProcessGroup) -> LossSum:
    """The model's own loss on dev, without dropout; in a stream, every segment goes on where the one before stopped.

    Of several processes each scores some of the batches, or of the rows of a stream. Batches are added up in their
    order, so that the sum does not depend on who scored them. The model is in training mode again afterwards.
    """
    model.eval()
    own: list[tuple[int, LossSum]] = []
    carried: ShardStates = {}
    with group.raise_together():
        for number, batch in enumerate(batches):
            if isinstance(batch, StreamBatch):
                rows = shard_rows(len(batch), group.rank, group.size)
            else:
                rows = slice(0, len(batch) if number % group.size == group.rank else 0)
            if rows.start < rows.stop:
                parts, carried = losses_in_parts(model, batch, config, {0: rows}, carried)
                own.append((number, LossSum.sum(LossSum.read([losses for losses, _ in parts])[0])))
    model.train()
    numbered = sorted((pair for part in group.all_gather(own) for pair in part), key=lambda pair: pair[0])
    return LossSum.sum(loss for _, loss in numbered)


@torch.no_grad()
def dev_f1(model: LanguageModel, trees: list[Tree], group: ProcessGroup) -> float:
    """Unlabelled F1 of the model's trees of dev, the mean over sentences (``inner_f1``), from 0 to 100.

    Of several processes each parses some sentences. The model is in training mode again afterwards.
    """
    model.eval()
    own: dict[int, list[float]] = {}
    with group.raise_together():
        for start in range(0, len(trees), _PARSED_TOGETHER)[group.rank :: group.size]:
            gold = trees[start : start + _PARSED_TOGETHER]
            parsed = require(model, Parser).parse([tree.words() for tree in gold])
            own[start] = [inner_f1(one, found) for one, found in zip(gold, parsed, strict=True)]
    model.train()
    by_start = {start: scores for part in group.all_gather(own) for start, scores in part.items()}
    scores = [f1 for start in sorted(by_start) for f1 in by_start[start]]
    return sum(scores) / len(scores)
