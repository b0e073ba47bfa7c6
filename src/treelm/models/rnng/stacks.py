"""The arena of persistent stacks: one row for every item that was ever pushed and can still be reached.

A row names the row below it, so a stack is the number of its top row, and stacks share what they have in common. A push
appends one row; nothing is copied or moved until ``keep`` drops what no analysis can reach any more.
"""

from __future__ import annotations

import copy

import numpy as np
from torch import Tensor

from treelm.models.rnng.weights import SearchWeights, lstm_cell_
from treelm.models.search.rows import (
    Bools,
    FloatRows,
    IntRows,
    Ints,
    as_index,
    blocks,
    padded,
    padded_rows,
    renumbering,
)
from treelm.models.search.validity import EMPTY

# Columns of a row.
BELOW = 0  # the row below on the stack
UNDER = 1  # the row that lies below the constituent or word which begins here (open item, piece of a word)
OPENED = 2  # the row of the innermost open nonterminal, this row itself if it is one
LABEL = 3  # of the open nonterminal, else -1
NUM_OPEN = 4
NUM_CONSECUTIVE = 5  # NT actions, as the validity rule counts them
TOP = 6  # EMPTY, WORD, CONSTITUENT or OPEN
IN_WORD = 7  # 1 if a token that does not end its word
PARTIAL = 8  # what the innermost open nonterminal holds so far (see ConstituentTable)
VECTOR = 9  # the item's vector (see ConstituentTable)
DEPTH = 10  # number of pushes on the way from the initial item
NUM_ACTIONS = 11  # of the analysis whose action pushed this row
NUM_NEEDED = 12  # words that have at least to come until a binary tree is complete; of others it means nothing
NUM_COLUMNS = 13

_ROOM = 1 << 12  # rows; a little more than ten sentences need at a time

_Layers = list[Tensor]  # a matrix for every layer


class Stacks:
    """Items with their integers and the states of every layer of the stack LSTM."""

    def __init__(self, weights: SearchWeights, empty_partial: int, starts: Tensor | None = None) -> None:
        """Push the initial item, row 0: one LSTM step on the learned embedding.

        With ``starts`` (n, E), which are added to it, there are n initial items, one a sentence.
        """
        self._weights = weights
        initial = weights.initial if starts is None else weights.initial + starts.to(weights.initial)
        self._num_initial = len(initial)
        like, size = weights.initial, weights.hidden_size
        self._items = IntRows(NUM_COLUMNS)
        self._hidden = [FloatRows(size, like, _ROOM) for _ in weights.hidden]
        self._cell = [FloatRows(size, like, _ROOM) for _ in weights.hidden]
        rows = np.zeros((self._num_initial, NUM_COLUMNS), np.int64)
        rows[:, [LABEL, VECTOR]] = -1
        rows[:, TOP], rows[:, PARTIAL], rows[:, NUM_NEEDED] = EMPTY, empty_partial, 1
        rows[:, [BELOW, UNDER, OPENED]] = np.arange(self._num_initial)[:, None]
        self._items.append(rows)
        self._push_initial(padded_rows(initial))

    def _push_initial(self, vectors: Tensor) -> None:
        weights, num_rows = self._weights, self._num_initial
        zero = vectors.new_zeros(len(vectors), weights.hidden_size)
        inputs = weights.vectors(vectors)[:, : 4 * weights.hidden_size]
        for layer, hidden in enumerate(weights.hidden):
            gates = hidden.bias + inputs
            state, cell = lstm_cell_(gates, zero)
            self._hidden[layer].append(state[:num_rows])
            self._cell[layer].append(cell[:num_rows])
            if layer < len(weights.deeper):
                inputs = weights.deeper[layer](state)

    def __len__(self) -> int:
        """Items on all stacks."""
        return len(self._items)

    def initial(self, num_sentences: int) -> Ints:
        """The rows of the initial items of n sentences: one for all, or one each."""
        return np.arange(num_sentences) if self._num_initial > 1 else np.zeros(num_sentences, np.int64)

    def items(self, rows: Ints) -> Ints:
        """A copy of the integers of some rows: (n, NUM_COLUMNS)."""
        items: Ints = self._items.all[rows]
        return items

    def column(self, rows: Ints, column: int) -> Ints:
        """One integer of some rows: (n,)."""
        integers: Ints = self._items.all[rows, column]
        return integers

    def top_states(self, rows: Ints) -> Tensor:
        """Hidden states of the highest layer, in a padded number of rows."""
        return self._hidden[-1].get(padded(rows))

    def push(self, below: Ints, items: Ints, inputs: FloatRows) -> tuple[Ints, Tensor]:
        """Push one item on each row of ``below``; returns the new rows and their padded top hidden states.

        ``inputs`` holds W_ih x of the lowest layer in its first columns, by VECTOR.
        """
        distinct, place = np.unique(below, return_inverse=True)
        products = self._products(padded(distinct))
        columns = padded(below), padded(place), padded(items[:, VECTOR])
        num_padded = len(columns[0])
        hidden, cell = (
            [rows.reserve(num_padded, len(below)) for rows in group] for group in (self._hidden, self._cell)
        )
        for block in blocks(num_padded):
            under, places, vectors = (column[block] for column in columns)
            gates = [product.index_select(0, as_index(places, product)) for product in products]
            self._push_block(under, gates, vectors, inputs, hidden=hidden, cell=cell, block=block)
        return self._items.append(items), hidden[-1]

    def _products(self, rows: Ints) -> _Layers:
        """W_hh h + b of every layer, for padded rows.

        They are not kept: an eighth more are computed than if they were;
        at k = 100 that saves two fifths of the arena.
        """
        return [affine(hidden.get(rows)) for affine, hidden in zip(self._weights.hidden, self._hidden, strict=True)]

    def _push_block(
        self,
        below: Ints,
        gates: _Layers,
        vectors: Ints,
        inputs: FloatRows,
        *,
        hidden: _Layers,
        cell: _Layers,
        block: slice,
    ) -> None:
        """The states of some of the new rows, which are ``block`` of ``hidden`` and ``cell``; uses up W_hh h + b."""
        state = inputs.get(vectors, slice(0, 4 * self._weights.hidden_size))
        for layer, sums in enumerate(gates):
            if layer == 0:
                sums += state
            else:
                self._weights.deeper[layer - 1].add_product_(sums, state)
            state, _ = lstm_cell_(sums, self._cell[layer].get(below), hidden[layer][block], cell[layer][block])

    def reachable(self, tops: Ints) -> Bools:
        """Mark the rows that lie on the stacks with these tops, and all initial items."""
        items = self._items.all
        marked = np.zeros(len(items), np.bool_)
        marked[: self._num_initial] = True
        while len(tops):
            marked[tops] = True
            tops = items[tops, BELOW]
            tops = tops[~marked[tops]]
        return marked

    def keep(self, marked: Bools) -> Ints:
        """Drop the other rows; returns the new number of every old row."""
        new = renumbering(marked)
        index = np.flatnonzero(marked)
        self._items.keep(index)
        for rows in self._hidden + self._cell:
            rows.keep(index)
        items = self._items.all
        for column in (BELOW, UNDER, OPENED):
            items[:, column] = new[items[:, column]]
        return new

    @property
    def vectors_in_use(self) -> Ints:
        """VECTOR of every item but the initial ones."""
        return self._items.all[self._num_initial :, VECTOR]

    @property
    def partials_in_use(self) -> Ints:
        """PARTIAL of every item."""
        return self._items.all[:, PARTIAL]

    def renumber(self, vectors: Ints, partials: Ints) -> None:
        """Follow a renumbering of vectors and of partials."""
        items = self._items.all
        own = items[self._num_initial :]
        own[:, VECTOR] = vectors[own[:, VECTOR]]
        items[:, PARTIAL] = partials[items[:, PARTIAL]]

    def copy(self) -> Stacks:
        """An independent copy."""
        new = copy.copy(self)
        new._items = self._items.copy()
        new._hidden, new._cell = ([rows.copy() for rows in group] for group in (self._hidden, self._cell))
        return new
