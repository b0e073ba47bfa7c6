"""External composition: a constituent's vector from its label and the vectors of its children, and nothing else.

A small Transformer over [e_X, c_1, .., c_m], in which all see each other (Zhao et al. 2025, n-ary):

    x = I [e_X; c_1; ..; c_m] + b;    x <- block(x), at distances i - j;    c = O LN(sum over i of x_i) + b

Shapes: n constituents, m children of the one with most, D units, P of the composer, N vectors, L labels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from treelm.models.layers.attention import AttentionBlock, Sight, start_normal
from treelm.models.layers.levels import earliest_levels
from treelm.models.search.derivations import IntArray, LocalTrees

NONE = -1


@dataclass(frozen=True, slots=True)
class Level:
    """Constituents all of whose children are made: their parts, by the vectors that there are so far."""

    parts: Tensor  # (n, 1 + m) label, then children; any number where ``missing``
    missing: Tensor  # (n, 1 + m)


class Composer(nn.Module):
    """The vectors of constituents."""

    max_distance = 8

    def __init__(self, size: int, units: int, num_heads: int, *, num_layers: int, dropout: float) -> None:
        """Draw from torch's global generator; ``units`` are the composer's own (P)."""
        super().__init__()
        self.input, self.output, self.norm = nn.Linear(size, units), nn.Linear(units, size), nn.LayerNorm(units)
        kinds = (2 * self.max_distance + 1,)
        self.blocks = nn.ModuleList(
            AttentionBlock(units, num_heads, num_layers=num_layers, kinds=kinds, dropout=dropout)
            for _ in range(num_layers)
        )
        for linear in (self.input, self.output):
            start_normal(linear.weight)
            nn.init.zeros_(linear.bias)

    def forward(self, parts: Tensor, missing: Tensor) -> Tensor:
        """Vectors (n, D) of constituents with these parts (n, 1 + m, D), of which some are missing (n, 1 + m)."""
        steps = torch.arange(parts.shape[1], device=parts.device)
        distance = (steps[:, None] - steps).clamp(-self.max_distance, self.max_distance) + self.max_distance
        alone = torch.eye(len(steps), dtype=torch.bool, device=parts.device)
        sight = Sight((missing[:, None] & ~alone)[:, None], (distance[None],))
        units = self.input(parts)
        for block in self.blocks:
            units = block(units, sight)
        summed = units.masked_fill(missing[:, :, None], 0.0).sum(1)
        vectors: Tensor = self.output(self.norm(summed))
        return vectors

    def compose(self, vectors: Tensor, levels: Sequence[Level]) -> Tensor:
        """Given vectors (N, D), with those of all constituents behind them, level by level."""
        for level in levels:
            shape = *level.parts.shape, -1
            parts = vectors.index_select(0, level.parts.flatten()).view(shape)
            vectors = torch.cat([vectors, self(parts, level.missing).to(vectors.dtype)])
        return vectors


def plan_levels(
    trees: LocalTrees, vectors: IntArray, labels: IntArray, wanted: IntArray, num_given: int
) -> tuple[tuple[Level, ...], IntArray]:
    """The levels of some local trees, all of whose constituents are ``wanted``, too; and the vector of each action.

    ``vectors`` (T,) are those of tokens, among ``num_given``; ``labels`` (F,) those of the labels of the local trees;
    ``wanted`` (W,) numbers of local trees. No constituent of a wanted one is missing from them.
    """
    counts = trees.num_children[wanted]
    width = int(counts.max(initial=0))
    place = np.arange(width)
    inside = place < counts[:, None]
    entries = np.append(trees.entries, NONE)
    first = trees.offsets[:-1][wanted] + 1
    children = np.where(inside, entries[np.where(inside, first[:, None] + place, NONE)], NONE)  # actions
    made_by = np.full(len(vectors) + 1, NONE)  # the wanted tree that each REDUCE closes
    made_by[trees.reduce[wanted]] = np.arange(len(wanted))
    level_of = earliest_levels(made_by[children])
    order = np.argsort(level_of, kind="stable")
    found = vectors.copy()
    found[trees.reduce[wanted[order]]] = num_given + np.arange(len(order))
    levels = list[Level]()
    for rows in np.split(order, np.flatnonzero(np.diff(level_of[order])) + 1) if len(order) else []:
        most = int(counts[rows].max())
        parts = np.concatenate([labels[wanted[rows], None], found[children[rows, :most]]], 1)
        missing = np.concatenate([np.zeros((len(rows), 1), np.bool_), ~inside[rows, :most]], 1)
        levels.append(Level(torch.from_numpy(np.where(missing, 0, parts)), torch.from_numpy(missing)))
    return tuple(levels), found
