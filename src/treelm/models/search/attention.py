"""Batch-invariant attention of the search: queries over rows of keys and values.

The same block as ``layers/attention.py``, computed so that a query has the same bits in every batch: the numbers of
queries and of rows that they see are padded, and sums over rows are made place by place. What a query sees is a list of
row numbers, itself first, filled up with ``NONE``.

Shapes: m queries, S rows that a query sees, D units, H heads of d units, R relative positions of a kind.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from treelm.models.layers.attention import AttentionBlock, RelativeKeys
from treelm.models.search.batch_invariant import Affine, blocks, widened
from treelm.models.search.rows import FloatRows, Ints

NONE = -1
"""Fills lists of row numbers up."""
_ROUND = 16  # what a query sees is padded to a multiple, so that its sums do not depend on other queries
_QUERIES, _SEEN = 64, 1024  # queries, and rows whose keys and values are held at a time: these fit into a cache


def lists_of_seen(num_queries: int, most: int) -> Ints:
    """Empty lists of rows (n, S), where S is ``most`` rounded up to a multiple of 16."""
    return np.full((num_queries, most + -most % _ROUND), NONE)


def lists_along(items: Ints, rows: Ints, lengths: Ints, column: int) -> Ints:
    """Follow links: lists (n, longest) of ``lengths`` rows each, first ``rows`` (n,), then each the column of the last.

    Shorter lists are filled up with ``NONE``.
    """
    lists = np.full((len(rows), int(lengths.max(initial=0))), NONE)
    for place in range(lists.shape[1]):
        going = place < lengths
        lists[going, place] = rows[going]
        rows = items[rows, column]
    return lists


def with_fillers(seen: Ints, num_queries: int) -> Ints:
    """The lists (n, S), followed by lists that have row 0 alone, up to m queries: (m, S)."""
    fillers = np.full((num_queries - len(seen), seen.shape[1]), NONE)
    fillers[:, 0] = 0
    return np.concatenate([seen, fillers])


@dataclass(frozen=True)
class Product:
    """x -> x W^T + b for padded rows (see ``batch_invariant.rounded``), where W may have few outputs.

    Such a W is widened before the product, and the result is cut.
    """

    affine: Affine
    num_outputs: int

    @classmethod
    def of(cls, weight: Tensor, bias: Tensor | None = None) -> Product:
        """Make it from a weight (O, I) and a bias (O,), or none."""
        size = weight.shape[1]
        added = None if bias is None else widened(bias, size, multiple=16)
        return cls(Affine.of(widened(weight, size, multiple=16), added), len(weight))

    @classmethod
    def linear(cls, layer: nn.Linear) -> Product:
        """Make it from a layer of torch."""
        return cls.of(layer.weight, layer.bias)

    def __call__(self, rows: Tensor) -> Tensor:
        """The product: (n, O)."""
        return self.affine(rows)[:, : self.num_outputs]


def frozen(norm: nn.LayerNorm) -> nn.LayerNorm:
    """A copy of a layer norm without gradients."""
    return copy.deepcopy(norm).requires_grad_(False)


@dataclass(frozen=True)
class BlockWeights:
    """The parameters of an ``AttentionBlock``, for queries that are scaled before they meet keys and tables."""

    scale: float
    attention_norm: nn.LayerNorm
    query_key_value: Product
    content_bias: Tensor  # u times scale: (D,)
    tables: tuple[tuple[Product, ...], ...]  # of each kind and head: scaled query -> logits of all R, v included
    output: Product
    feedforward_norm: nn.LayerNorm
    up: Product
    down: Product

    @classmethod
    def of(cls, block: AttentionBlock) -> BlockWeights:
        """Take the parameters of a block that has relative positions."""
        assert block.content_bias is not None
        return cls(
            scale=block.scale,
            attention_norm=frozen(block.attention_norm),
            query_key_value=Product.linear(block.query_key_value),
            content_bias=block.content_bias.detach().flatten() * block.scale,
            tables=tuple(_tables(kind, block.scale) for kind in block.relative if isinstance(kind, RelativeKeys)),
            output=Product.linear(block.output),
            feedforward_norm=frozen(block.feedforward_norm),
            up=Product.linear(block.up),
            down=Product.linear(block.down),
        )

    def relative_logits(self, queries: Tensor) -> tuple[Tensor, ...]:
        """Scaled queries (n, D) -> logits of all relative positions, (n, H, R) of each kind."""
        heads = queries.view(len(queries), len(self.tables[0]), -1).unbind(1)
        return tuple(
            torch.stack([table(head) for table, head in zip(tables, heads, strict=True)], 1) for tables in self.tables
        )

    def finish(self, units: Tensor, mixed: Tensor) -> Tensor:
        """The layer's outputs from its inputs and the mixed values, (n, D) all."""
        units = units + self.output(mixed)
        return units + self.down(functional.gelu(self.up(self.feedforward_norm(units))))


def _tables(kind: RelativeKeys, scale: float) -> tuple[Product, ...]:
    """For each head, the product that maps a scaled query to the logits of all R relative positions."""
    keys, bias = kind.keys.detach(), kind.bias.detach() * scale
    return tuple(Product.of(key, (key * one).sum(1)) for key, one in zip(keys, bias, strict=True))


class Queries(NamedTuple):
    """Positions to be computed, in a padded number m; those that only fill it up see row 0 alone."""

    units: Tensor  # (m, D)
    seen: Tensor  # (m, S) the rows that each sees, any row where ``hidden``
    hidden: Tensor  # (m, 1 or H, S)
    relative: tuple[Tensor, ...]  # of each kind, integers 0 to R - 1: (m, 1, S)


def read_layer(
    layer: BlockWeights,
    units: Tensor,
    queries: Queries,
    keys_values: FloatRows,
    num_rows: int,
    found: list[Tensor] | None = None,
) -> Tensor:
    """One layer: inputs (m, D) of all queries -> outputs (m, D).

    The keys and values of the first ``num_rows`` queries are appended to ``keys_values``. To ``found``, if given, the
    logits of one block of queries after the other are appended, (b, H, S) each.
    """
    size = units.shape[1]
    together = layer.query_key_value(layer.attention_norm(units))
    kept = keys_values.reserve(len(units), num_rows)  # those of the other queries are overwritten by the next call
    kept.copy_(together[:, size:])
    query = together[:, :size] * layer.scale
    relative = layer.relative_logits(query.contiguous())
    content = query + layer.content_bias
    mixed = torch.empty_like(content)
    for block in blocks(len(units), min(_QUERIES, max(1, _SEEN // queries.seen.shape[1]))):
        seen = keys_values.get_lists(queries.seen[block])
        logits = [
            kind[block].gather(2, places[block].expand(-1, kind.shape[1], -1))
            for kind, places in zip(relative, queries.relative, strict=True)
        ]
        mixed[block] = _mix(content[block], seen, logits, queries.hidden[block], found)
    return layer.finish(units, mixed)


def _mix(
    content: Tensor, seen: Tensor, relative: Sequence[Tensor], hidden: Tensor, found: list[Tensor] | None
) -> Tensor:
    """Values mixed by attention (b, D), from queries (b, D), keys and values (b, S, 2D), relative logits (b, H, S).

    Products are made and summed place by place, not by a library whose sums depend on how many there are.
    """
    num_queries, num_heads, num_seen = relative[0].shape
    keys, values = seen.view(num_queries, num_seen, 2, num_heads, -1).unbind(2)  # (b, S, H, d)
    logits = (keys * content.view(num_queries, 1, num_heads, -1)).sum(-1).transpose(1, 2)
    for one in relative:
        logits = logits + one
    weights = logits.masked_fill_(hidden, -torch.inf).softmax(-1)
    if found is not None:
        found.append(logits)
    mixed: Tensor = (weights.transpose(1, 2)[..., None] * values).sum(1)
    return mixed.flatten(1)
