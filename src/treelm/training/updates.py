"""One update of the weights."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from lightning_fabric import Fabric
from torch.optim import Optimizer

from treelm.corpora.stream_batches import StreamBatch
from treelm.errors import InputError
from treelm.models.base import Losses, SyntacticLM
from treelm.models.layers.dropout import shared_draws
from treelm.models.layers.graphs import cuda_graphs, has_graphs
from treelm.models.readings import Carried
from treelm.training.config import TrainingConfig
from treelm.training.data import Batch, part_of, shard_rows
from treelm.training.memory import within_memory
from treelm.training.outcomes import NonFiniteError
from treelm.training.parts import compute_in_parts
from treelm.training.randomness import seed_shard
from treelm.training.ranks import Ranks


@dataclass
class LossSum:
    """Losses added up over batches, in nats, with what they are counted over."""

    total: float = 0.0
    num_words: int = 0
    num_sentences: int = 0
    terms: dict[str, list[float]] = field(default_factory=dict)  # name -> [sum, count]

    def add(self, losses: Losses) -> None:
        """Take in the losses of one more batch."""
        self.total += losses.total.item()
        self.num_words += losses.num_words
        self.num_sentences += losses.num_sentences
        for name, term in losses.terms.items():
            self._add_term(name, term.sum.item(), term.count)

    def merge(self, other: LossSum) -> None:
        """Take in what another one holds."""
        self.total += other.total
        self.num_words += other.num_words
        self.num_sentences += other.num_sentences
        for name, (value, count) in other.terms.items():
            self._add_term(name, value, count)

    def _add_term(self, name: str, value: float, count: float) -> None:
        sums = self.terms.setdefault(name, [0.0, 0])
        sums[0] += value
        sums[1] += count

    @property
    def nats_per_word(self) -> float:
        """The loss that training minimises, for each word."""
        return self.total / self.num_words if self.num_words else math.nan

    def named(self) -> dict[str, float]:
        """The figures under the names that ``metrics.jsonl`` gives them."""
        per_word = self.nats_per_word
        figures = {"loss_nats_per_word": per_word, "loss_perplexity_per_word": perplexity(per_word)}
        return figures | {
            f"{name}_nats_per_decision": total / count for name, (total, count) in self.terms.items() if count
        }


def sum_of(losses: Iterable[LossSum]) -> LossSum:
    """All of them together, added up in this order."""
    total = LossSum()
    for loss in losses:
        total.merge(loss)
    return total


def perplexity(nats_per_word: float) -> float:
    """exp of a loss; infinite where a float cannot hold it."""
    return math.exp(nats_per_word) if nats_per_word < 700 else math.inf


ShardStates = dict[int, Carried]
"""What the rows of each shard of a stream carry on; a process has those of its own shards."""


class Update(NamedTuple):
    """What one step gives."""

    loss: LossSum
    gradient_norm: float  # before clipping
    carried: ShardStates  # of a stream, for the next segment


def make_update(
    fabric: Fabric,
    model: SyntacticLM,
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

    def accumulate(size: int | None) -> LossSum:
        optimizer.zero_grad(set_to_none=True)
        loss = LossSum()

        def take(losses: Losses, part: Batch) -> None:
            if not torch.isfinite(losses.total):
                raise NonFiniteError(f"the loss is {losses.total.item()}", step=step, names=part.names)
            fabric.backward(losses.total / divisor)
            loss.add(losses)

        for shard, own in own_shards(batch, model, config, ranks):
            with _random_numbers(model, config, ranks, step, shard):
                state = (carried or {}).get(shard)
                state = compute_in_parts(fabric, model, own, state, config, size=size, take=take)
            if state is not None:
                following[shard] = state
        return loss

    def compute() -> LossSum:
        return within_memory(accumulate, config.micro_batch_size, splits=not model.couples_sentences)

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


def check_shards(model: SyntacticLM, config: TrainingConfig, ranks: Ranks) -> None:
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


def check_graphs(model: SyntacticLM, config: TrainingConfig, device: torch.device) -> None:
    """Raise ``InputError`` for CUDA graphs that there cannot be."""
    if not config.cuda_graphs:
        return
    if device.type != "cuda":
        raise InputError("cuda_graphs = true without a GPU", where="[training]", remedy="leave it out")
    if not has_graphs(model):
        found = f"cuda_graphs = true for {model.system}, whose loops are others in every batch"
        raise InputError(found, where="[training]", remedy="leave it out")


def own_shards(batch: Batch, model: SyntacticLM, config: TrainingConfig, ranks: Ranks) -> Iterator[tuple[int, Batch]]:
    """The numbered parts of a batch that this process computes; those without sentences are left out."""
    num_shards, ends_word = count_shards(config, ranks), model.vocabulary.ends_word
    for shard in range(ranks.rank, num_shards, ranks.number):
        rows = shard_rows(len(batch), shard, num_shards)
        if rows.start < rows.stop:
            yield shard, part_of(batch, rows, ends_word)


def _random_numbers(
    model: SyntacticLM, config: TrainingConfig, ranks: Ranks, step: int, shard: int
) -> AbstractContextManager[None]:
    """Random numbers that belong to the shard; the whole batch of a single process goes on with the global ones."""
    if config.shards is None and ranks.number == 1:
        return nullcontext()
    return shared_draws(seed_shard(config.seed, step, shard, next(model.parameters()).device))


def _divisor(batch: Batch, config: TrainingConfig) -> int:
    if isinstance(batch, StreamBatch):
        return batch.num_targets
    return int(batch.num_words.sum()) if config.normalise_loss == "word" else len(batch)


def _clip(fabric: Fabric, model: SyntacticLM, optimizer: Optimizer, config: TrainingConfig) -> float:
    largest = math.inf if config.gradient_clip is None else config.gradient_clip
    norm = fabric.clip_gradients(model, optimizer, max_norm=largest, error_if_nonfinite=False)
    return math.nan if norm is None else norm.item()


def check_finite(model: SyntacticLM, *, step: int) -> None:
    """Raise ``NonFiniteError`` when a weight is not finite, so that it is never saved."""
    for name, tensor in model.state_dict().items():
        if not torch.isfinite(tensor).all():
            raise NonFiniteError(f"weight {name!r} is not finite", step=step)
