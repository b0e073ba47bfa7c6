"""The arena of stacks: a row for every position that was pushed, its keys and values written once.

A row names the row below it and the one before it among those that are seen, so an analysis is the number of its top
row and nothing is copied but rows that are looked at. A constituent is read in one pass of two queries: COMPOSE, whose
keys and values are its row, and STACK, which sees that row and predicts, and whose own nobody needs again.

Shapes: n new rows, m queries (those of the new rows, then those of STACK), S rows that a query sees, D units, H heads.
"""

from __future__ import annotations

import copy

import numpy as np
import torch
from torch import Tensor

from treelm.models.layers.devices import to_device
from treelm.models.search.attention import NONE, Queries, lists_along, lists_of_seen, read_layer, with_fillers
from treelm.models.search.rows import Bools, FloatRows, IntRows, Ints, padded, padded_rows, renumbered, renumbering
from treelm.models.search.validity import EMPTY
from treelm.models.transformer_grammar.positions import relative, seen_by_heads
from treelm.models.transformer_grammar.weights import SearchWeights

# Columns of a row.
BELOW = 0  # the row below on the stack; -1 below START
BEFORE = 1  # the row before among those that are seen: the one below or, where nothing is hidden, the last one pushed
OPENED = 2  # the row of the innermost open nonterminal, this row itself if it is one; -1 for none
LABEL = 3  # of the innermost open nonterminal; -1 for none
NUM_OPEN = 4
NUM_CONSECUTIVE = 5  # NT actions, as the validity rule counts them
TOP = 6  # EMPTY, WORD, CONSTITUENT or OPEN
IN_WORD = 7  # 1 if a token that does not end its word
DEPTH = 8  # of the position in the tree
HEIGHT = 9  # rows below on the stack
PLACE = 10  # positions pushed before
NUM_BEFORE = 11  # rows before among those that are seen
NUM_COLUMNS = 12

_MEASURES = {"depth": DEPTH, "height": HEIGHT, "place": PLACE}


class KeyValueStacks:
    """Rows of integers, of keys and values of every layer, and of the hidden state that predicts what comes next."""

    def __init__(self, weights: SearchWeights, starts: Tensor | None = None) -> None:
        """Push START, which is row 0. With ``starts`` (n, D), which are added to it, there are n, one a sentence."""
        self._weights = weights
        config, like = weights.config, weights.tokens
        self._measure = _MEASURES[config.positions]
        self._items = IntRows(NUM_COLUMNS)
        self._layers = [FloatRows(2 * config.size, like) for _ in weights.layers]  # keys, then values
        self._outputs = FloatRows(config.size, like)
        vectors = weights.marks[:1] if starts is None else weights.marks[:1] + starts.to(weights.marks)
        self._num_starts = len(vectors)
        items = np.zeros((self._num_starts, NUM_COLUMNS), np.int64)
        items[:, [BELOW, BEFORE, OPENED, LABEL]] = NONE
        items[:, TOP] = EMPTY
        none = np.empty(0, np.int64)
        self.push(items, vectors, none, none)

    def __len__(self) -> int:
        """Rows on all stacks."""
        return len(self._items)

    def starts(self, num_sentences: int) -> Ints:
        """The rows of START of n sentences: one for all, or one each."""
        return np.arange(num_sentences) if self._num_starts > 1 else np.zeros(num_sentences, np.int64)

    def items(self, rows: Ints) -> Ints:
        """A copy of the integers of some rows: (n, NUM_COLUMNS)."""
        items: Ints = self._items.all[rows]
        return items

    def outputs(self, rows: Ints) -> Tensor:
        """Hidden states that predict what follows these rows, in a padded number."""
        return self._outputs.get(padded(rows))

    def push(self, items: Ints, vectors: Tensor, composing: Ints, tops: Ints) -> Ints:
        """Push rows (n) with these inputs (n, D); gives their numbers.

        Those that are ``composing`` (r,) take all down to the nonterminal that is open on ``tops`` (r,) off the stack.
        """
        num_rows = len(items)
        looking = items[composing]
        looking[:, PLACE] += 1
        seen = self._seen(items, composing, tops)
        rows = self._items.append(items)
        with_looking = np.concatenate([self._items.all, looking])
        vectors = torch.cat([vectors, vectors.index_select(0, to_device(composing, vectors.device))])
        queries = self._queries(with_looking, seen, vectors)
        units = queries.units
        for layer, keys_values in zip(self._weights.layers, self._layers, strict=True):
            units = read_layer(layer, units, queries, keys_values, num_rows)
        units = self._weights.norm(units)
        predicting = np.arange(num_rows)
        predicting[composing] = num_rows + np.arange(len(composing))
        self._outputs.append(units.index_select(0, to_device(predicting, units.device)))
        return rows

    def _seen(self, items: Ints, composing: Ints, tops: Ints) -> Ints:
        """The rows that each query sees (n + r, S), itself first, NONE behind the last."""
        num_rows, num_composing, first = len(items), len(composing), len(self._items)
        old = self._items.all
        stacks = lists_along(old, items[:, BEFORE], items[:, NUM_BEFORE], BEFORE)
        parts = lists_along(old, tops, old[tops, HEIGHT] - old[old[tops, OPENED], HEIGHT] + 1, BELOW)
        seen = lists_of_seen(num_rows + num_composing, 2 + max(stacks.shape[1], parts.shape[1]))
        seen[:, 0] = first + np.arange(len(seen))
        seen[:num_rows, 1 : 1 + stacks.shape[1]] = stacks
        seen[composing, 1:] = NONE
        seen[composing, 1 : 1 + parts.shape[1]] = parts
        seen[num_rows:, 1] = first + composing
        seen[num_rows:, 2 : 2 + stacks.shape[1]] = stacks[composing]
        return seen

    def _queries(self, items: Ints, seen: Ints, vectors: Tensor) -> Queries:
        """Lay the queries out; ``items`` are those of all rows, the new ones and those of STACK too."""
        config, device = self._weights.config, vectors.device
        units = padded_rows(vectors)
        seen = with_fillers(seen, len(units))
        own = items[seen[:, 0]]
        distance = own[:, self._measure, None] - items[seen, self._measure]
        found = torch.from_numpy(seen != NONE)
        if config.structured_heads:
            innermost = np.where(own[:, OPENED] == NONE, NONE, items[own[:, OPENED], PLACE])
            places = torch.from_numpy(items[seen, PLACE])
            found = seen_by_heads(found[:, None], torch.from_numpy(innermost)[:, None], places, config.num_heads)[
                :, :, 0
            ]
        else:
            found = found[:, None]
        return Queries(
            units=units,
            seen=to_device(np.maximum(seen, 0), device),
            hidden=(~found).to(device),
            relative=(relative(torch.from_numpy(distance), config).to(device)[:, None],),
        )

    def keep(self, tops: Ints) -> Ints:
        """Drop the rows that analyses with these tops see no more; returns the new number of every old row."""
        items = self._items.all
        marked: Bools = np.zeros(len(items), np.bool_)
        marked[: self._num_starts] = True
        while len(tops):
            marked[tops] = True
            tops = items[tops, BEFORE]
            tops = tops[~marked[tops]]
        new, index = renumbering(marked), np.flatnonzero(marked)
        self._items.keep(index)
        for rows in (self._outputs, *self._layers):
            rows.keep(index)
        items = self._items.all
        for column in (BELOW, BEFORE, OPENED):
            items[:, column] = renumbered(new, items[:, column])
        return new

    def copy(self) -> KeyValueStacks:
        """An independent copy."""
        new = copy.copy(self)
        new._items, new._outputs = self._items.copy(), self._outputs.copy()
        new._layers = [rows.copy() for rows in self._layers]
        return new
