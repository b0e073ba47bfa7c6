"""The arena: all stacks of a search, in which analyses share what they have in common.

It has one row for every item that was ever pushed and can still be reached. A row names the row below it, so a stack is
the number of its top row. A push appends one row; nothing is copied or moved until ``keep`` drops the rows that no
analysis can reach any more. The vectors of items are numbers of rows in the table of constituents
(``constituents.py``).

For example, after (S (NP the, the analyses that push "dog" and those that push "cat" share all rows but the last::

    row    0        1   2    3    4    5
    item   initial  S   NP   the  dog  cat
    BELOW  0        0   1    2    3    3
    OPENED 0        1   2    2    2    2
"""

from __future__ import annotations

import copy
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from treelm.models.rnng.composition import Composition
from treelm.models.rnng.config import RNNGConfig
from treelm.models.search.batch_invariant import Affine, blocks, padded, padded_rows
from treelm.models.search.rows import Bools, FloatRows, IntRows, Ints, as_index, mark_reachable, renumbering
from treelm.models.search.validity import EMPTY


@dataclass(frozen=True)
class AttentionWeights:
    """The parameters of attention over children, without those of its LSTM and its output layer."""

    label_query: Tensor  # (N, E)
    label_vector: Tensor  # (N, E)
    query: Affine
    gate: Affine


@dataclass(frozen=True)
class SearchWeights:
    """The parameters of a model as the search uses them.

    E: size of vectors, H: of hidden states; N labels, A actions, V tokens.
    """

    config: RNNGConfig
    num_labels: int
    ends_word: Bools  # (V,)
    initial: Tensor  # (1, E)
    tokens: Tensor  # (V, E)
    labels: Tensor  # (N, E)
    vectors: Affine  # input weights of all that reads vectors: the lowest stack layer, both composition LSTMs
    deeper: tuple[Affine, ...]  # W_ih h of stack layers 1, 2, ..., from the layer below; without bias
    hidden: tuple[Affine, ...]  # W_hh h + b of every stack layer
    output: Affine  # (H) -> (E), before the ReLU
    actions: Affine  # (E) -> A logits, followed by columns of zeros
    words: Affine  # (E) -> V logits, in tiny models followed by impossible tokens
    composition: Composition
    composed: Affine | None  # the composition's output layer
    forward_hidden: Affine | None
    backward_hidden: Affine | None
    attention: AttentionWeights | None

    @property
    def num_actions(self) -> int:
        """Number of actions A."""
        return 2 + self.num_labels + (self.config.order == "in-order")

    @property
    def hidden_size(self) -> int:
        """Size of hidden states H."""
        return self.config.hidden_size

    @property
    def direction_size(self) -> int:
        """Units of each direction of the composition LSTM; 0 without composition."""
        return 0 if self.forward_hidden is None else len(self.forward_hidden.weight)


def affine(layer: nn.Linear) -> Affine:
    """The product of a linear layer, for the search."""
    return Affine.of(layer.weight, layer.bias)


def lstm_cell_(
    gates: Tensor, cell: Tensor, hidden_out: Tensor | None = None, cell_out: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """New hidden and cell state (n, H), from gates (n, 4H: i, f, o, g) before their nonlinearity, and the old cell.

    ``gates`` are overwritten. The states are written to ``hidden_out`` and ``cell_out``, if given.
    """
    size = cell.shape[1]
    candidate = gates[:, 3 * size :].mul_(2)
    gates.sigmoid_()
    candidate.mul_(2).sub_(1)  # tanh(x) = 2 sigmoid(2x) - 1, several times faster than torch's tanh on a CPU
    sigmoids = gates[:, : 3 * size]
    new_cell = torch.mul(sigmoids[:, size : 2 * size], cell, out=cell_out)
    new_cell.addcmul_(sigmoids[:, :size], candidate)
    tanh_cell = torch.mul(new_cell, 2, out=candidate).sigmoid_().mul_(2).sub_(1)
    return torch.mul(sigmoids[:, 2 * size :], tanh_cell, out=hidden_out), new_cell


# Columns of a row.
BELOW = 0  # the row below on the stack
UNDER = 1  # the row below the first row of the constituent or word of which this is an open item or a piece
OPENED = 2  # the row of the innermost open nonterminal, this row itself if it is one
LABEL = 3  # of the open nonterminal, else -1
NUM_OPEN = 4
NUM_CONSECUTIVE = 5  # NT actions, as the validity rule counts them
TOP = 6  # EMPTY, WORD, CONSTITUENT or OPEN
IN_WORD = 7  # 1 if a token that does not end its word
PARTIAL = 8  # what the innermost open nonterminal holds so far (see ConstituentTable)
VECTOR = 9  # the item's vector (see ConstituentTable)
DEPTH = 10  # number of pushes on the way from the initial item
NUM_ACTIONS = 11  # actions of the analysis that pushed this row
NUM_NEEDED = 12  # the least number of words until a binary tree is complete; not used for other trees
NUM_COLUMNS = 13

_ROOM = 1 << 12  # rows: a little more than ten sentences need at a time


class Stacks:
    """The table of items: their integers, and the states of every layer of the stack LSTM."""

    def __init__(self, weights: SearchWeights, empty_partial: int, starts: Tensor | None = None) -> None:
        """Push the initial item, row 0: one LSTM step on the learned embedding.

        With ``starts`` (n, E), which are added to the embedding, there are n initial items, one for each sentence.
        """
        self._weights = weights
        initial = weights.initial if starts is None else weights.initial + starts.to(weights.initial)
        self._num_initial, size = len(initial), weights.hidden_size
        self._items = IntRows(NUM_COLUMNS)
        self._hidden = [FloatRows(size, weights.initial, _ROOM) for _ in weights.hidden]
        self._cell = [FloatRows(size, weights.initial, _ROOM) for _ in weights.hidden]
        rows = np.zeros((self._num_initial, NUM_COLUMNS), np.int64)
        rows[:, [LABEL, VECTOR]] = -1
        rows[:, TOP], rows[:, PARTIAL], rows[:, NUM_NEEDED] = EMPTY, empty_partial, 1
        rows[:, [BELOW, UNDER, OPENED]] = np.arange(self._num_initial)[:, None]
        self._items.append(rows)
        vectors = padded_rows(initial)
        zero, inputs = vectors.new_zeros(len(vectors), size), weights.vectors(vectors)[:, : 4 * size]
        for layer, hidden in enumerate(weights.hidden):
            state, cell = lstm_cell_(hidden.bias + inputs, zero)
            self._hidden[layer].append(state[: self._num_initial])
            self._cell[layer].append(cell[: self._num_initial])
            if layer < len(weights.deeper):
                inputs = weights.deeper[layer](state)

    def __len__(self) -> int:
        """Number of rows."""
        return len(self._items)

    def initial(self, num_sentences: int) -> Ints:
        """The rows of the initial items of n sentences (n,): the same one for all, or one each."""
        return np.arange(num_sentences) if self._num_initial > 1 else np.zeros(num_sentences, np.int64)

    def items(self, rows: Ints) -> Ints:
        """A copy of the integers of rows (n,): (n, NUM_COLUMNS)."""
        items: Ints = self._items.all[rows]
        return items

    def column(self, rows: Ints, column: int) -> Ints:
        """One column of the integers of rows (n,): (n,)."""
        integers: Ints = self._items.all[rows, column]
        return integers

    def top_states(self, rows: Ints) -> Tensor:
        """Hidden states of the highest layer in rows (n,): (m, H), padded to a round number m."""
        return self._hidden[-1].get(padded(rows))

    def output(self, states: Tensor) -> Tensor:
        """o = ReLU(W h + b) of hidden states (m, H) of the highest layer, m a round number: (m, E)."""
        return self._weights.output(states).relu_()

    def outputs(self, rows: Ints) -> Tensor:
        """o of stacks with these tops (n,): (m, E), padded to a round number m."""
        return self.output(self.top_states(rows))

    def layer_states(self, rows: Ints) -> list[Tensor]:
        """Hidden states (n, H) of every layer in rows (n,), the lowest layer first."""
        return [hidden.get(rows) for hidden in self._hidden]

    def push(self, below: Ints, items: Ints, inputs: FloatRows) -> tuple[Ints, Tensor]:
        """Push one item (n, NUM_COLUMNS) on each row of ``below`` (n,).

        Returns the new rows (n,) and their hidden states of the highest layer, padded. ``inputs`` has a row for every
        VECTOR, whose first columns are W_ih x of the lowest layer.
        """
        weights = self._weights
        distinct, place = np.unique(below, return_inverse=True)
        # W_hh h + b of every layer. An eighth more are computed than if they were stored with the rows, but the arena
        # of k = 100 is two fifths smaller.
        rows = padded(distinct)
        products = [product(hidden.get(rows)) for product, hidden in zip(weights.hidden, self._hidden, strict=True)]
        under, place, vectors = padded(below), padded(place), padded(items[:, VECTOR])
        num_padded, num_new = len(under), len(below)
        hidden, cell = ([one.reserve(num_padded, num_new) for one in group] for group in (self._hidden, self._cell))
        for block in blocks(num_padded):
            state = inputs.get(vectors[block], slice(0, 4 * weights.hidden_size))
            index = as_index(place[block], state)
            for layer, product in enumerate(products):
                gates = product.index_select(0, index)
                if layer == 0:
                    gates += state
                else:
                    weights.deeper[layer - 1].add_product_(gates, state)
                before = self._cell[layer].get(under[block])
                state, _ = lstm_cell_(gates, before, hidden[layer][block], cell[layer][block])
        return self._items.append(items), hidden[-1]

    def keep(self, tops: Ints) -> Ints:
        """Keep the initial items, and what lies on stacks with these tops; returns the new number of every old row."""
        marked = np.zeros(len(self._items), np.bool_)
        marked[: self._num_initial] = marked[tops] = True
        mark_reachable(marked, self._items.all[:, BELOW])
        new, index = renumbering(marked), np.flatnonzero(marked)
        self._items.keep(index)
        for rows in self._hidden + self._cell:
            rows.keep(index)
        items = self._items.all
        for column in (BELOW, UNDER, OPENED):
            items[:, column] = new[items[:, column]]
        return new

    @property
    def in_use(self) -> tuple[Ints, Ints]:
        """VECTOR of every item except the initial ones, and PARTIAL of every item; both are views."""
        items = self._items.all
        return items[self._num_initial :, VECTOR], items[:, PARTIAL]

    def renumber(self, vectors: Ints, partials: Ints) -> None:
        """Replace the numbers of vectors and of partials by the new number of each."""
        for numbers, new in zip(self.in_use, (vectors, partials), strict=True):
            numbers[:] = new[numbers]

    def copy(self) -> Stacks:
        """An independent copy."""
        new = copy.copy(self)
        new._items = self._items.copy()
        new._hidden, new._cell = ([rows.copy() for rows in group] for group in (self._hidden, self._cell))
        return new
