"""The two incremental parsers, with one word of look-ahead (p) and with none (p'), and how often they are right."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from treelm.models.layers.precision import linear


class AttachmentScorer(nn.Module):
    """beta = (w . ReLU(LN(W_q x) + LN(W_k c)) + b) / sqrt(D), for input x and each candidate c (Eq. 5)."""

    def __init__(self, size: int) -> None:
        """Build for vectors of size D."""
        super().__init__()
        self.query = nn.Linear(size, size)
        self.query_norm = nn.LayerNorm(size)
        self.key = nn.Linear(size, size)
        self.key_norm = nn.LayerNorm(size)
        self.score = nn.Linear(size, 1)

    def queries(self, inputs: Tensor) -> Tensor:
        """LN(W_q x): (n, D) -> (n, D)."""
        normed: Tensor = self.query_norm(linear(inputs, self.query.weight, self.query.bias))
        return normed

    def forward(self, queries: Tensor, candidates: Tensor, masks: tuple[Tensor, Tensor] | None = None) -> Tensor:
        """Scores of pairs: queries (n, D), candidates (n, D) -> (n,).

        ``masks`` (n, D) multiply the candidates and the hidden units: dropout that was drawn before.
        """
        if masks is not None:
            candidates = candidates * masks[0]
        hidden = (queries + self.key_norm(linear(candidates, self.key.weight, self.key.bias))).relu()
        if masks is not None:
            hidden = hidden * masks[1]
        scores = linear(hidden, self.score.weight, self.score.bias)
        return scores[:, 0] / math.sqrt(queries.shape[1])


class PredictionScorer(nn.Module):
    """alpha = (w_2 . ReLU(W_1 c + b_1) + b_2) / sqrt(D), for each candidate c."""

    def __init__(self, size: int) -> None:
        """Build for vectors of size D."""
        super().__init__()
        self.hidden = nn.Linear(size, size)
        self.score = nn.Linear(size, 1)

    def forward(self, candidates: Tensor, dropout: nn.Module | None = None) -> Tensor:
        """Scores of candidates (n, D): (n,)."""
        drop = dropout if dropout is not None else nn.Identity()
        hidden = drop(linear(drop(candidates), self.hidden.weight, self.hidden.bias).relu())
        scores = linear(hidden, self.score.weight, self.score.bias)
        return scores[:, 0] / math.sqrt(candidates.shape[1])


def slot_log_probs(scores: Tensor, rows: Tensor, slots: Tensor, num_rows: int, num_slots: int) -> Tensor:
    """log softmax over occupied slots: scores (n,) of pairs (row, slot) -> (num_rows, N), -inf at empty slots.

    Every row needs a pair at least.
    """
    full = scores.new_full((num_rows, num_slots), -math.inf)
    return torch.index_put(full, (rows, slots), scores).log_softmax(1)


@dataclass(kw_only=True)
class Accuracy:
    """How often the most probable slot is the oracle's. A position is forced when only one slot is possible."""

    correct: int = 0
    total: int = 0
    forced: int = 0  # always correct

    def add(self, log_probs: Tensor, labels: NDArray[np.int64]) -> None:
        """Count distributions (n, N) and their labels (n,)."""
        best = log_probs.argmax(1).cpu().numpy()
        self.correct += int((best == labels).sum())
        self.total += len(labels)
        self.forced += int((torch.isfinite(log_probs).sum(1) == 1).sum())

    @property
    def all_positions(self) -> float:
        """Share of positions, forced ones included."""
        return self.correct / self.total if self.total else math.nan

    @property
    def unforced(self) -> float:
        """Share of the positions that leave a choice."""
        num_free = self.total - self.forced
        return (self.correct - self.forced) / num_free if num_free else math.nan


def accuracies(attachment: Accuracy, prediction: Accuracy) -> dict[str, float]:
    """Shares of positions where the scorers are right, by name; without a prediction network, of p alone."""
    found = {"p_accuracy": attachment.all_positions, "p_accuracy_unforced": attachment.unforced}
    if not prediction.total:
        return found
    return found | {
        "p_prediction_accuracy": prediction.all_positions,
        "p_prediction_accuracy_unforced": prediction.unforced,
    }
