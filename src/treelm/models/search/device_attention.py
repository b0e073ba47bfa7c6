"""Attention of a search on a GPU: rows with keys and values, and lists of the rows that each position sees.

Keys and values are written once and shared by all analyses that see them. Which rows an analysis sees is a list in the
order of their positions, so that nothing is followed from row to row: the successor's list is the list of the row
before, with the new row in one place. For example, W = 5 after (S (NP the dog)), whose parts are hidden::

    row   START  (S     (NP     the      dog        NP)
    list  0....  0 1..  0 1 2.  0 1 2 3  0 1 2 3 4  0 1 5

Shapes: n rows, m positions computed at once, W places of a list, D units, H heads of d units.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import pad
from torch.nn.functional import scaled_dot_product_attention as attention

from treelm.models.layers.attention import normalised_entropies, value_norms
from treelm.models.search.attention import BlockWeights
from treelm.models.search.device_rows import NUM_BEFORE, DeviceRows

_ROUND = 16  # lists are widened by so many places
_MOST_NUMBERS = 1 << 26  # numbers of keys and values that are gathered at a time
_MOST_QUERIES = 1 << 14


def _rounded(width: int) -> int:
    return width + -width % _ROUND


class DeviceAttention(DeviceRows):
    """Rows with the keys and values of every layer as the first parts of their floats, and lists (rows, kinds, W).

    The first ``num_row_lists`` kinds of lists hold row numbers, and the last of these holds all rows that are needed.
    Places of a list that are not used hold row 0, the first one, which is always there.
    """

    def __init__(
        self,
        layers: Sequence[BlockWeights],
        norm: nn.LayerNorm,
        *,
        num_lists: int,
        num_row_lists: int,
        widths: Sequence[int],
        tokens: Tensor,
        **settings: Any,
    ) -> None:
        """Start without rows. ``widths`` are those of further parts of floats; the last predicts, and has D units."""
        kept = [2 * tokens.shape[1]] * len(layers)
        super().__init__(widths=[*kept, *widths, tokens.shape[1]], tokens=tokens, **settings)
        self._layers, self._norm, self._num_row_lists = layers, norm, num_row_lists
        # Of each layer and kind: the products of all heads at once, (H, d, R) and (H, 1, R).
        self._relative = [
            [
                (
                    torch.stack([head.affine.weight for head in kind]),
                    torch.stack([head.affine.bias for head in kind])[:, None],
                )
                for kind in layer.tables
            ]
            for layer in layers
        ]
        self._lists = torch.zeros((0, num_lists, _ROUND), dtype=torch.int64, device=tokens.device)
        self._tables.append("_lists")

    def _lengthen(self) -> Tensor:
        """Make room in lists for one row more, and for another that is not kept; returns the places (W,)."""
        self._height += 1
        missing = _rounded(self._height + 1) - self._lists.shape[2]
        if missing > 0:
            self._lists = pad(self._lists, (0, missing))
        return self._places

    @property
    def _places(self) -> Tensor:
        return torch.arange(self._lists.shape[2], device=self._lists.device)

    def _append(
        self, items: Tensor, lists: Tensor, log_probs: Tensor, parts: Mapping[int, Tensor] | None = None
    ) -> Tensor:
        """Write rows, for which there is room, with these ``parts`` of their floats; returns their numbers (n,)."""
        rows = slice(self._length, self._length + len(items))
        self._items[rows], self._lists[rows], self._log_probs[rows] = items, lists, log_probs
        for part, values in (parts or {}).items():
            self._floats[rows, self._columns[part]] = values
        self._length = rows.stop
        return torch.arange(rows.start, rows.stop, device=items.device)

    def _scores(self, part: int, rows: Tensor, queries: Tensor) -> Tensor:
        """Products of queries (n, P) with a part of the floats of rows (n, W), of which each has P numbers: (n, W)."""
        at_once = max(1, _MOST_NUMBERS // (rows.shape[1] * queries.shape[1]))
        pairs = zip(torch.split(rows, at_once), torch.split(queries[..., None], at_once), strict=True)
        found = [self._get(part, some.flatten()).view(*some.shape, -1) @ query for some, query in pairs]
        return torch.cat(found)[..., 0]

    def _attend(
        self,
        units: Tensor,
        seen: Tensor,
        hidden: Tensor,
        relative: Sequence[Tensor],
        value_factors: Tensor | None = None,
    ) -> Tensor:
        """The outputs (m, D) of positions with these vectors (m, D), which become the keys and values of m new rows.

        They see the rows ``seen`` (m, W), but for those ``hidden`` (m, 1 or H, W), at these relative positions of each
        kind (m, W). With ``value_factors`` of the last layer, ``attention`` says how widely it looks back.
        """
        size, rows = units.shape[1], slice(self._length, self._length + len(units))
        at_once = min(_MOST_QUERIES, max(1, _MOST_NUMBERS // (2 * size * seen.shape[1])))
        blocks = [slice(start, start + at_once) for start in range(0, len(units), at_once)]
        entropies = list[Tensor]()
        for layer, tables, columns in zip(self._layers, self._relative, self._columns, strict=False):
            together = layer.query_key_value(layer.attention_norm(units))
            self._floats[rows, columns] = together[:, size:]
            query = together[:, :size] * layer.scale
            content, num_heads = query + layer.content_bias, len(tables[0][0])
            heads = query.view(len(query), num_heads, -1).transpose(0, 1)
            by_position = [torch.baddbmm(bias, heads, weight).transpose(0, 1) for weight, bias in tables]
            mixed = torch.empty_like(content)
            for block in blocks:
                looked = self._floats[:, columns].index_select(0, seen[block].flatten())
                looked = looked.view(*seen[block].shape, 2, num_heads, -1)
                keys, values = looked.permute(2, 0, 3, 1, 4)  # (b, H, W, d)
                index = [one[block][:, None].expand(-1, num_heads, -1) for one in relative]
                found = [one[block].gather(2, places) for one, places in zip(by_position, index, strict=True)]
                logits = sum(found[1:], found[0]).masked_fill(hidden[block], -torch.inf)
                queries = content[block].view(*logits.shape[:2], 1, -1)
                mixed[block] = attention(queries, keys, values, logits[:, :, None], scale=1.0).flatten(1)
                if value_factors is not None and layer is self._layers[-1]:
                    itself = seen[block] == torch.arange(rows.start, rows.stop, device=seen.device)[block, None]
                    of_others = (logits + (keys * queries).sum(-1)).masked_fill(itself[:, None], -torch.inf)
                    entropies.append(_entropies(of_others, values, value_factors))
            units = layer.finish(units, mixed)
        if entropies:
            self.attention = torch.cat(entropies)
        outputs: Tensor = self._norm(units)
        return outputs

    def reachable(self, tops: Tensor) -> tuple[Tensor, Tensor]:
        """How many of the rows up to each one are needed for these tops (rows,), and the depth of the deepest top."""
        needed = torch.zeros(self._length, dtype=torch.int64, device=tops.device)
        needed[: self._num_initial] = 1
        needed.index_fill_(0, tops.flatten(), 1)
        needed.index_fill_(0, self._lists[:, self._num_row_lists - 1][tops.flatten()].flatten(), 1)
        return needed.cumsum(0), self._items[:, NUM_BEFORE][tops].max()

    def keep(self, number: Tensor, count: int, depth: int) -> None:
        """Keep the ``count`` rows that ``reachable`` has counted in ``number``: row i becomes ``number[i] - 1``."""
        super().keep(number, count, depth)
        width = _rounded(self._height + 1)
        if width < self._lists.shape[2]:
            self._lists = self._lists[:, :, :width].contiguous()
        lists = self._lists[:count, : self._num_row_lists]
        lists.copy_(number[lists] - 1)


def _entropies(logits: Tensor, values: Tensor, value_factors: Tensor) -> Tensor:
    """Normalised attention entropies (b, H, 2) of logits (b, H, W) over values (b, H, W, d)."""
    norms = value_norms(values.transpose(1, 2).flatten(2).flatten(0, 1), value_factors)  # (H, b W)
    return normalised_entropies(logits.double(), norms.view(len(norms), len(logits), -1).transpose(0, 1))
