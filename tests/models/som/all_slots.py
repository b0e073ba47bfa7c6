"""SOM as its equations state it: every slot at every step, through plain autograd.

It shares nothing with the fast form but the parameters. The tests hold the fast form against it, and the benchmark
measures what the fast form gains. Decisions are given, so that both compute the same.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from treelm.corpora.encoding import SentenceBatch
from treelm.models.som.network import SOM
from treelm.models.som.plan import pad

IntArray = NDArray[np.int64]


def all_slots_losses(
    som: SOM,
    batch: SentenceBatch,
    *,
    decisions: IntArray,
    choices: IntArray,
    labels: IntArray,
    next_labels: IntArray,
) -> Tensor:
    """The sum that ``SOM.losses`` totals, for a batch with given decisions, all (B, T), without dropout."""
    lengths = np.diff(batch.token_offsets)
    tokens = pad(batch.tokens, batch.token_offsets, first=som.boundary, last=som.boundary)
    num_steps = int(lengths.max()) + 1
    is_real = torch.from_numpy(np.arange(num_steps)[:, None] <= lengths)
    given = [torch.from_numpy(values[:, :num_steps].T.copy()) for values in (decisions, choices, labels, next_labels)]
    theta, choice, label, next_label = given
    inputs = som.embed(torch.from_numpy(tokens[:, :num_steps].T.copy()).flatten()).view(num_steps, len(lengths), -1)
    memory = inputs.new_zeros(len(lengths), som.config.num_slots, som.config.size)
    candidates = memory
    rows = []
    for t in range(num_steps):
        log_p, memory, candidates = _read_step(
            som, inputs[t], memory, candidates, theta[t], theta[t - 1] if t else None
        )
        log_q, hidden = _predict_step(som, memory, candidates, theta[t], choice[t])
        rows.append((hidden, log_p, log_q))
    hidden, log_p, log_q = (torch.stack(column) for column in zip(*rows, strict=True))
    log_words = functional.linear(hidden, som.embedding, som.output_bias).log_softmax(2)
    targets = torch.from_numpy(tokens[:, 1 : num_steps + 1].T.copy())
    loss = -_picked(log_words, targets)[is_real].sum() * som.config.word_loss
    loss = loss - _picked(log_p, label)[1:][is_real[1:]].sum()
    if som.config.prediction_network:
        loss = loss - _picked(log_q, next_label)[is_real].sum()
    return loss


def _picked(log_probs: Tensor, indices: Tensor) -> Tensor:
    return log_probs.gather(2, indices[..., None].clamp(max=log_probs.shape[2] - 1))[..., 0]


def _read_step(
    som: SOM, inputs: Tensor, memory: Tensor, candidates: Tensor, theta: Tensor, before: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Eqs. 1-5: attach the input (B, D) to memory and candidates (B, N, D)."""
    num_slots = som.config.num_slots
    slots = torch.arange(num_slots)
    if before is None:
        log_p = inputs.new_zeros(len(inputs), num_slots)
    else:
        queries = som.attachment.queries(som.for_scoring(inputs))
        pairs = queries.repeat_interleave(num_slots, 0), som.for_scoring(candidates.flatten(0, 1))
        scores = som.attachment(*pairs).view(-1, num_slots)
        log_p = scores.masked_fill(slots < before[:, None] - 1, -torch.inf).log_softmax(1)
        memory = torch.where((slots <= theta[:, None])[..., None], candidates, memory)
    below, columns = inputs, []
    weights = som.cell.weights()
    for slot in range(num_slots):
        composed = weights.apply(below, memory[:, slot])
        below = torch.where((theta <= slot)[:, None], composed, inputs)
        columns.append(below)
    return log_p, memory, torch.stack(columns, 1)


def _predict_step(som: SOM, memory: Tensor, candidates: Tensor, theta: Tensor, choice: Tensor) -> tuple[Tensor, Tensor]:
    """The prediction network: log p' (B, N) and h (B, D)."""
    slots = torch.arange(som.config.num_slots)
    if som.prediction_cell is None or som.prediction is None:
        return candidates.new_zeros(candidates.shape[:2]), candidates[:, -1]
    scores = som.prediction(som.for_scoring(candidates.flatten(0, 1)), som.dropout).view(-1, len(slots))
    log_q = scores.masked_fill(slots < theta[:, None] - 1, -torch.inf).log_softmax(1)
    state, weights = torch.zeros_like(memory[:, 0]), som.prediction_cell.weights()
    for slot in reversed(range(len(slots))):
        read = torch.where((choice == slot)[:, None], candidates[:, slot], memory[:, slot])
        state = torch.where((choice <= slot)[:, None], weights.apply(state, read), state)
    return log_q, state
