"""One update of the weights."""

from __future__ import annotations

import math
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import NamedTuple

import torch
from lightning_fabric import Fabric
from torch.optim import Optimizer

from treelm.corpora.stream_batches import StreamBatch
from treelm.errors import InputError
from treelm.models.base import LanguageModel, Losses
from treelm.models.layers.dropout import shared_draws
from treelm.models.layers.graphs import cuda_graphs, has_graphs
from treelm.training.config import TrainingConfig
from treelm.training.data import Batch, shard_rows
from treelm.training.metrics import LossSum, sum_of
from treelm.training.numerics import seed_shard
from treelm.training.outcomes import NonFiniteError
from treelm.training.parts import ShardStates, compute_in_parts
from treelm.training.ranks import Ranks


class Update(NamedTuple):
    """Results of one update."""

    loss: LossSum
    gradient_norm: float  # before clipping
    carried: ShardStates  # hidden states of a stream, for the next segment


def make_update(
    fabric: Fabric,
    model: LanguageModel,
    optimizer: Optimizer,
    batch: Batch,
    config: TrainingConfig,
    step: int,
    *,
    carried: ShardStates | None = None,
    ranks: Ranks | None = None,
) -> Update:
    """Change the weights by the gradient of one batch.

    The loss is the sum over the batch divided by its words or sentences, whatever the micro-batches; of a segment of a
    stream, divided by its targets. Of several processes (``ranks``) each computes some shards of the batch. Raises
    ``NonFiniteError``, the weights unchanged, when loss or gradient is not finite.
    """
    ranks = ranks or Ranks(fabric)
    divisor = _divisor(batch, config)
    following: ShardStates = {}

    def take(losses: Losses, part: Batch) -> None:
        if not torch.isfinite(losses.total):
            raise NonFiniteError(f"the loss is {losses.total.item()}", step=step, names=part.names)
        fabric.backward(losses.total / divisor)

    def compute() -> LossSum:
        loss, states = compute_in_parts(
            fabric,
            model,
            batch,
            config,
            shards=own_shards(batch, config, ranks),
            carried=carried or {},
            size=config.micro_batch_size,
            begin=partial(optimizer.zero_grad, set_to_none=True),
            random_numbers=partial(_random_numbers, model, config, ranks, step),
            take=take,
        )
        following.update(states)
        return loss

    with cuda_graphs(wanted=config.cuda_graphs):
        loss = sum_of(ranks.together(compute))
    ranks.sum_gradients(model)
    norm = _clip(fabric, model, optimizer, config)
    if not math.isfinite(norm):
        raise NonFiniteError(f"the norm of the gradient is {norm}", step=step, names=batch.names)
    optimizer.step()
    return Update(loss, norm, following)


def count_shards(config: TrainingConfig, ranks: Ranks) -> int:
    """Parts that every batch is cut into."""
    return config.shards or ranks.number


def check_shards(model: LanguageModel, config: TrainingConfig, ranks: Ranks) -> None:
    """Raise ``InputError`` for shards that there cannot be."""
    num_shards = count_shards(config, ranks)
    if num_shards < ranks.number:
        remedy = "give each process a shard, or leave shards out"
        raise InputError(f"shards = {num_shards} for {ranks.number} processes", where="[training]", remedy=remedy)
    if config.batches == "stream" and config.batch_size < num_shards:
        found = f"a stream of batch_size = {config.batch_size} rows for {num_shards} shards"
        raise InputError(found, where="[training]", remedy="raise batch_size, or lower shards or devices")
    if num_shards > 1 and model.couples_sentences:
        found = f"{num_shards} shards of a batch that {model.system} normalises as a whole"
        raise InputError(found, where="[training]", remedy='take one process, or norm = "layer" in [model]')


def check_graphs(model: LanguageModel, config: TrainingConfig, device: torch.device) -> None:
    """Raise ``InputError`` for CUDA graphs that there cannot be."""
    if not config.cuda_graphs:
        return
    if device.type != "cuda":
        raise InputError("cuda_graphs = true without a GPU", where="[training]", remedy="leave it out")
    if not has_graphs(model):
        found = f"cuda_graphs = true for {model.system}, whose loops are others in every batch"
        raise InputError(found, where="[training]", remedy="leave it out")


def own_shards(batch: Batch, config: TrainingConfig, ranks: Ranks) -> dict[int, slice]:
    """Number and rows of the parts of a batch that this process computes; those without rows are left out."""
    num_shards = count_shards(config, ranks)
    shards = {shard: shard_rows(len(batch), shard, num_shards) for shard in range(ranks.rank, num_shards, ranks.number)}
    return {shard: rows for shard, rows in shards.items() if rows.start < rows.stop}


def _random_numbers(
    model: LanguageModel, config: TrainingConfig, ranks: Ranks, step: int, shard: int
) -> AbstractContextManager[None]:
    """Random numbers that belong to the shard; the whole batch of a single process goes on with the global ones."""
    if config.shards is None and ranks.number == 1:
        return nullcontext()
    return shared_draws(seed_shard(config.seed, step, shard, next(model.parameters()).device))


def _divisor(batch: Batch, config: TrainingConfig) -> int:
    if isinstance(batch, StreamBatch):
        return batch.num_targets
    return int(batch.num_words.sum()) if config.normalise_loss == "word" else len(batch)


def _clip(fabric: Fabric, model: LanguageModel, optimizer: Optimizer, config: TrainingConfig) -> float:
    largest = math.inf if config.gradient_clip is None else config.gradient_clip
    norm = fabric.clip_gradients(model, optimizer, max_norm=largest, error_if_nonfinite=False)
    return math.nan if norm is None else norm.item()


def check_finite(model: LanguageModel, *, step: int) -> None:
    """Raise ``NonFiniteError`` when a weight is not finite, so that it is never saved."""
    for name, tensor in model.state_dict().items():
        if not torch.isfinite(tensor).all():
            raise NonFiniteError(f"weight {name!r} is not finite", step=step)
