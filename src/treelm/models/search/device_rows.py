"""Growing tables on a GPU: what the machines of ``on_device.py`` have in common.

An analysis is the number of a row, and rows never change: an action appends the rows of the successors. A row has
integers, floats (in parts, of which the last predicts what follows) and log p of every action that may come next.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from treelm.models.search.batch_invariant import Affine
from treelm.models.search.machine import BINARY_GROUPS
from treelm.models.search.on_device import RowCounts
from treelm.models.search.validity import Bounds, Configuration, valid_actions
from treelm.models.search.word_head import token_log_probs
from treelm.trees.transitions import REDUCE

# The first columns of integers of a row; the others are those of the systems.
NUM_OPEN, IN_WORD, NUM_NEEDED = range(3)  # as in the machines of the CPU
NUM_BEFORE = 3  # the number of rows on the longest path to this one, itself left out
NUM_COMMON = 4

_LARGEST_PRODUCT = 1 << 26  # logits of tokens that are held at a time


class DeviceRows:
    """The tables of one search, for a ``DeviceMachine``.

    Where a guess had room for more rows than are needed, the others hold successors that are not used.
    """

    def __init__(
        self, *, num_actions: int, num_columns: int, widths: Sequence[int], words: Affine, tokens: Tensor
    ) -> None:
        """Start without rows. ``widths`` are those of the parts of floats; ``words`` and ``tokens`` predict a token."""
        device = tokens.device
        self.num_actions, self.num_groups, self.ends_by_closing = num_actions, 1, True
        self.num_closed = (torch.arange(num_actions, device=device) == REDUCE).long()
        self.attention = tokens.new_zeros((0, 0, 2))
        self._words, self._tokens = words, tokens
        self._items = torch.empty((0, num_columns), dtype=torch.int64, device=device)
        self._floats = tokens.new_empty((0, sum(widths)))
        self._log_probs = torch.empty((0, num_actions), dtype=torch.float64, device=device)
        self._tables = ["_items", "_floats", "_log_probs"]
        stops = np.cumsum([0, *widths]).tolist()
        self._columns = list(itertools.starmap(slice, itertools.pairwise(stops)))
        self._num_initial, self._length = 0, 0
        self._height = 1  # a bound on 1 + NUM_BEFORE of every row

    def __len__(self) -> int:
        """Number of rows."""
        return self._length

    @property
    def row_bytes(self) -> int:
        """Bytes of memory that a row takes."""
        tables = [getattr(self, name) for name in self._tables]
        return sum(table[:1].numel() * table.element_size() for table in tables)

    def start(self, num_sentences: int) -> Tensor:
        """The rows of analyses before the first action: (S,)."""
        rows = torch.arange(num_sentences, device=self._items.device)
        return rows if self._num_initial > 1 else torch.zeros_like(rows)

    def log_probs(self, tops: Tensor) -> Tensor:
        """log p of the next action, -inf where it is not valid: (..., A)."""
        return self._log_probs[tops]

    def towards_end(self, tops: Tensor) -> Tensor:
        """The log probabilities (..., A) of actions that may lead to the end without SHIFT; -inf for others."""
        return self.log_probs(tops)

    def num_open(self, tops: Tensor) -> Tensor:
        """Open nonterminals of analyses with these tops, of any shape."""
        return self._items[:, NUM_OPEN][tops]

    def groups(self, tops: Tensor) -> Tensor:
        """The group of analyses with these tops, of any shape."""
        if self.num_groups == 1:
            return torch.zeros_like(tops)
        return (self._items[:, NUM_NEEDED][tops] + self._items[:, IN_WORD][tops]).clamp(0, BINARY_GROUPS - 1)

    def token_log_probs(self, tops: Tensor, tokens: Tensor) -> Tensor:
        """log p(token | SHIFT) of one token each: (n,)."""
        size = max(1, _LARGEST_PRODUCT // len(self._words.bias))
        parts = zip(torch.split(tops, size), torch.split(tokens, size), strict=True)
        return torch.cat([token_log_probs(self._words, self._tokens, self._get(-1, rows), one) for rows, one in parts])

    def cut(self, length: int) -> None:
        """Remove the rows from ``length`` on."""
        self._length = length

    def keep(self, number: Tensor, count: int, depth: int) -> None:
        """Keep the ``count`` rows that ``reachable`` has counted in ``number``: row i becomes ``number[i] - 1``."""
        index = torch.searchsorted(number, torch.arange(1, count + 1, device=number.device))
        for name in self._tables:
            table = getattr(self, name)
            table[:count] = table[index]
        self._length, self._height = count, depth + 1

    def _chosen(
        self,
        first: Tensor,
        second: Tensor,
        row_counts: RowCounts,
        lengths: Tensor | None = None,
        more: Tensor | None = None,
    ) -> tuple[Tensor, Tensor, Tensor, list[int]]:
        """Which successors (m,) to push: those marked ``first``, then those marked ``second``, two disjoint masks.

        With ``lengths`` (m,), 0 but for the first ones, the longest of these come first. Returns both kinds, the rows
        of all successors (m,) once those were pushed in this order (a wrong guess leads beyond the last row), and
        guesses for ``more`` counts.
        """
        key = 2 * first + second
        order = (key if lengths is None else key + lengths).argsort(descending=True, stable=True)
        counts, numbers = torch.stack([first.sum(), second.sum()]), torch.arange(len(order), device=order.device)
        wanted = counts if more is None else torch.cat([counts, more])
        num_first, num_second, *others = row_counts(wanted, len(order))
        place = torch.empty_like(order).scatter_(0, order, numbers)
        rows = self._length + place + torch.where(first, 0, num_first - counts[0])
        places = (counts[0] + numbers[:num_second]).clamp(max=len(order) - 1)
        return order[:num_first], order[places], rows.where(key > 0, 0), others

    def _get(self, part: int, rows: Tensor) -> Tensor:
        """A part of the floats of some rows (n,)."""
        return self._floats[:, self._columns[part]].index_select(0, rows)

    def _reserve(self, num_rows: int) -> None:
        """Make room for ``num_rows`` further rows."""
        wanted, held = self._length + num_rows, len(self._items)
        if wanted > held:
            for name in self._tables:
                table = getattr(self, name)
                grown = table.new_empty((max(wanted, held * 5 // 4), *table.shape[1:]))
                grown[: self._length] = table[: self._length]
                setattr(self, name, grown)


def masked_log_softmax(logits: Tensor, valid: Tensor) -> Tensor:
    """log p of the valid actions (n, A) in float64; -inf for others, and for all where none is valid."""
    masked = logits.double().masked_fill(~valid, -torch.inf)
    return masked.log_softmax(1).where(valid, -torch.inf)


class ValidActions:
    """The rule of ``validity.py`` as a table of all cases."""

    def __init__(self, bounds: Bounds, num_labels: int, device: torch.device) -> None:
        """Make the table."""
        num_open, opens, top, in_word, only_child = (
            part.numpy() for part in torch.cartesian_prod(*(torch.arange(size) for size in (3, 2, 4, 2, 2))).T
        )
        state = Configuration(
            num_open=num_open,
            num_consecutive=(1 - opens) * bounds.max_consecutive,
            top=top,
            in_word=in_word == 1,
            only_child=only_child == 1,
        )
        self._table = torch.from_numpy(valid_actions(bounds, state, num_labels)).to(device)
        self._bounds = bounds

    def __call__(self, *state: Tensor) -> Tensor:
        """A mask over actions (n, A) for n derivations: the arguments are the fields of ``validity.Configuration``."""
        num_open, num_consecutive, *others = state
        opens = (num_open < self._bounds.max_open) & (num_consecutive < self._bounds.max_consecutive)
        index = num_open.clamp(0, 2)
        for factor, part in zip((2, 4, 2, 2), (opens, *others), strict=True):
            index = index * factor + part
        return self._table[index]
