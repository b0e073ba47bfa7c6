"""Equations of SOM (Shen et al. 2021): the gated cell of both recurrences (Eq. 3), and the scorers of slots (Eq. 5).

A vector of size D is a semantic segment, then a syntactic one; an eSOM has the first only. In a dSOM syntactic outputs
of cells never read semantic inputs: that block of each weight is zero and no parameter.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from treelm.models.layers.lstm import uniform
from treelm.models.layers.precision import linear

NORM_EPSILON = 1e-5


@dataclass(frozen=True, kw_only=True, slots=True)
class CellWeights:
    """The dense weights of a cell, zero blocks filled in, and where the segments of a vector end."""

    hidden_weight: Tensor  # (4D, 2D), reads [h; m]
    hidden_bias: Tensor  # (4D)
    gate_weight: Tensor  # (4D, 4D), rows f, i, c, u
    gate_bias: Tensor  # (4D)
    norm_weight: Tensor  # (D)
    norm_bias: Tensor  # (D)
    segments: tuple[int, ...]  # sizes of the segments, their sum is D

    def tensors(self) -> tuple[Tensor, ...]:
        """The six tensors, in the order of the fields."""
        return tuple(getattr(self, one.name) for one in fields(self) if one.name != "segments")


class SegmentedLinear(nn.Module):
    """A linear layer whose inputs and outputs are groups of vectors, each of segments in the given proportions."""

    def __init__(self, segments: tuple[int, ...], *, inputs: int, outputs: int, to_vectors: bool) -> None:
        """Read groups of ``inputs`` vectors, write groups of ``outputs`` vectors.

        One of the two sides stands vector by vector: the output if ``to_vectors``, else the input. The other side are
        hidden units, whose order is free: all semantic ones, then all syntactic ones.
        """
        super().__init__()
        size = sum(segments)
        self.shape = (outputs * size, inputs * size)
        self.is_separate = len(segments) == 2
        semantic = segments[0] if self.is_separate else size
        self.weight = uniform(outputs * semantic, inputs * size, fan_in=inputs * size)
        self.bias = uniform(outputs * size, fan_in=inputs * size)
        if self.is_separate:
            self.syntactic_weight = uniform(outputs * segments[1], inputs * segments[1], fan_in=inputs * segments[1])
            rows = _is_semantic(segments, outputs, by_vector=to_vectors)
            columns = _is_semantic(segments, inputs, by_vector=not to_vectors)
            self.register_buffer("semantic_rows", _indices(rows, True), persistent=False)
            self.register_buffer("syntactic_rows", _indices(rows, False), persistent=False)
            self.register_buffer("syntactic_columns", _indices(columns, False), persistent=False)

    semantic_rows: Tensor
    syntactic_rows: Tensor
    syntactic_columns: Tensor

    def dense_weight(self) -> Tensor:
        """The weight (out, in) with its zero block."""
        if not self.is_separate:
            return self.weight
        dense = self.weight.new_zeros(self.shape).index_copy(0, self.semantic_rows, self.weight)
        return dense.index_put((self.syntactic_rows[:, None], self.syntactic_columns), self.syntactic_weight)


def _is_semantic(segments: tuple[int, ...], vectors: int, *, by_vector: bool) -> list[bool]:
    semantic, syntactic = segments
    if by_vector:
        return ([True] * semantic + [False] * syntactic) * vectors
    return [True] * semantic * vectors + [False] * syntactic * vectors


def _indices(flags: list[bool], wanted: bool) -> Tensor:
    return torch.tensor([index for index, flag in enumerate(flags) if flag == wanted])


class SegmentedNorm(nn.Module):
    """Layer normalisation of each segment by itself."""

    def __init__(self, segments: tuple[int, ...]) -> None:
        """Start as plain normalisation."""
        super().__init__()
        self.segments = segments
        self.weight = nn.Parameter(torch.ones(sum(segments)))
        self.bias = nn.Parameter(torch.zeros(sum(segments)))

    def forward(self, vectors: Tensor) -> Tensor:
        """vectors (..., D) -> (..., D)."""
        return segmented_norm(vectors, self.weight, self.bias, self.segments)


def segmented_norm(vectors: Tensor, weight: Tensor, bias: Tensor, segments: tuple[int, ...]) -> Tensor:
    """Layer normalisation of each segment of vectors (..., D) by itself, then weight (D) and bias (D)."""
    if len(segments) == 1:
        return functional.layer_norm(vectors, segments, weight, bias, NORM_EPSILON)
    parts = [
        functional.layer_norm(part, (part.shape[-1],), eps=NORM_EPSILON)
        for part in vectors.split_with_sizes(segments, dim=-1)
    ]
    return torch.cat(parts, -1) * weight + bias


class Cell(nn.Module):
    """cell(h, m) = LN(sigmoid(f) * h + sigmoid(i) * m + sigmoid(c) * u), [f; i; c; u] = W2 ReLU(W1 [h; m] + b1) + b2.

    h is the candidate below, m the vector in the memory's slot. u has no nonlinearity of its own.
    """

    def __init__(self, segments: tuple[int, ...]) -> None:
        """Build for vectors of these segments."""
        super().__init__()
        self.hidden = SegmentedLinear(segments, inputs=2, outputs=4, to_vectors=False)
        self.gates = SegmentedLinear(segments, inputs=4, outputs=4, to_vectors=True)
        self.norm = SegmentedNorm(segments)

    def weights(self) -> CellWeights:
        """The dense weights, for as many evaluations as one likes."""
        return CellWeights(
            hidden_weight=self.hidden.dense_weight(),
            hidden_bias=self.hidden.bias,
            gate_weight=self.gates.dense_weight(),
            gate_bias=self.gates.bias,
            norm_weight=self.norm.weight,
            norm_bias=self.norm.bias,
            segments=self.norm.segments,
        )


def apply_cell(weights: CellWeights, below: Tensor, stored: Tensor) -> Tensor:
    """cell(h, m) in the plain form, without dropout: h and m (..., D) -> (..., D)."""
    hidden = functional.linear(torch.cat([below, stored], -1), weights.hidden_weight, weights.hidden_bias).relu()
    f, i, c, u = functional.linear(hidden, weights.gate_weight, weights.gate_bias).chunk(4, -1)
    mixed = f.sigmoid() * below + i.sigmoid() * stored + c.sigmoid() * u
    return segmented_norm(mixed, weights.norm_weight, weights.norm_bias, weights.segments)


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
    """Count of positions whose most probable slot is the oracle's; one is forced if only one slot is possible."""

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
