"""What analyses in search share: the arena of stacks, and the table of vectors and constituents.

The arena has one row for every item that was ever pushed and can still be reached. A row names the row below it, so a
stack is the number of its top row, and stacks share what they have in common. A push appends one row; nothing is copied
or moved until ``keep`` drops what no analysis can reach any more.

The table shares by content. A "partial" is an open nonterminal with its children so far: (label, c_1 ... c_n). Partials
form a trie, keyed by (partial, child), whose nodes hold the forward state of the composition LSTM. So analyses that
differ elsewhere share them, one child more is one LSTM step, and equal constituents are composed once.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from treelm.models.layers.devices import to_device
from treelm.models.rnng.composition import AttentionComposition, Composition, LSTMComposition, NoComposition
from treelm.models.rnng.config import RNNGConfig
from treelm.models.search.rows import (
    Affine,
    Bools,
    FloatRows,
    IntRows,
    Ints,
    as_index,
    blocks,
    padded,
    padded_rows,
    renumbering,
    rounded,
)
from treelm.models.search.validity import EMPTY


@dataclass(frozen=True)
class AttentionWeights:
    """Parameters of attention over children, besides its LSTM and its output layer."""

    label_query: Tensor  # (N, E)
    label_vector: Tensor  # (N, E)
    query: Affine
    gate: Affine

    @classmethod
    def of(cls, composition: AttentionComposition) -> AttentionWeights:
        """Name the parameters."""
        query, gate = Affine.of(composition.query.weight), affine(composition.gate)
        return cls(composition.label_query.detach(), composition.label_vector.detach(), query, gate)


@dataclass(frozen=True)
class SearchWeights:
    """Parameters that search needs of a model. E: size of vectors, H: of hidden states, A: actions, V: tokens."""

    config: RNNGConfig
    num_labels: int
    ends_word: Bools  # (V,)
    initial: Tensor  # (1, E)
    tokens: Tensor  # (V, E)
    labels: Tensor  # (N, E)
    vectors: Affine  # what a vector enters: the lowest stack layer and, with composition, its two directions
    deeper: tuple[Affine, ...]  # from the hidden state of the layer below, for layers 1, 2, ...; no bias
    hidden: tuple[Affine, ...]  # W_hh h + b of every layer
    output: Affine  # E from H, before its ReLU
    actions: Affine  # with some columns of zeros after the A of the actions
    words: Affine  # in tiny models with impossible tokens after the V
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
        """Units of each direction of the composition LSTM."""
        if isinstance(self.composition, (LSTMComposition, AttentionComposition)):
            return self.composition.forward_lstm.hidden_size
        return 0


def affine(layer: nn.Linear) -> Affine:
    """A linear layer as search multiplies by it."""
    return Affine.of(layer.weight, layer.bias)


def lstm_cell_(
    gates: Tensor, cell: Tensor, hidden_out: Tensor | None = None, cell_out: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """New hidden and cell state (n, H), written to the given rows if any; ``gates`` (n, 4H: i, f, o, g) are used up."""
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


# Columns of a partial.
PREVIOUS, CHILD, OPENED_LABEL, NUM_CHILDREN, COMPOSED = range(5)


class ConstituentTable:
    """All vectors and partials of a search. Vectors and partials are numbers of rows."""

    def __init__(self, weights: SearchWeights) -> None:
        """Vectors and partials 0 ... N - 1 are the labels, without children; partial N stands for "nothing open"."""
        self._weights = weights
        self.vectors = FloatRows(weights.vectors.weight.shape[1], weights.initial)  # W x of every use of a vector
        size, num_labels = weights.direction_size, weights.num_labels
        self._hidden, self._cell = FloatRows(size, weights.initial), FloatRows(size, weights.initial)
        self._partials = IntRows(5)
        self._known: dict[int, int] = {}  # (partial, child) -> partial
        self._tokens: dict[int, int] = {}  # token -> vector
        self._add_vectors(weights.labels)
        self._reduce_vector = self._add_reduce_vector()
        self._add_roots(num_labels)

    @property
    def nothing_open(self) -> int:
        """The partial of a stack without open nonterminals."""
        return self._weights.num_labels

    def _columns(self, use: int) -> slice:
        """Columns of ``vectors`` that enter the forward (0) or backward (1) composition LSTM."""
        start, width = 4 * self._weights.hidden_size, 4 * self._weights.direction_size
        return slice(start + use * width, start + (use + 1) * width)

    def _add_vectors(self, vectors: Tensor) -> Ints:
        first, rows = len(self.vectors), padded_rows(vectors)
        self._weights.vectors(rows, out=self.vectors.reserve(len(rows), len(vectors)))
        return np.arange(first, len(self.vectors))

    def _add_reduce_vector(self) -> int:
        """Add the vector that REDUCE pushes without composition; returns its row, -1 with composition."""
        if not isinstance(self._weights.composition, NoComposition):
            return -1
        return int(self._add_vectors(self._weights.composition.reduce_embedding.detach()[None])[0])

    def _add_roots(self, num_labels: int) -> None:
        roots = np.zeros((num_labels + 1, 5), np.int64)
        roots[:, OPENED_LABEL], roots[:, COMPOSED] = np.arange(num_labels + 1), -1
        self._partials.append(roots)
        zero = self._weights.initial.new_zeros(rounded(num_labels + 1), self._weights.direction_size)
        hidden, cell = zero, zero
        if isinstance(self._weights.composition, LSTMComposition):
            labels = np.minimum(np.arange(len(zero)), num_labels - 1)
            hidden, cell = lstm_cell_(self.vectors.get(labels, self._columns(0)), zero)
            self._backward_start = lstm_cell_(self.vectors.get(labels, self._columns(1)), zero)
        self._hidden.append(hidden[: num_labels + 1])
        self._cell.append(cell[: num_labels + 1])

    def of_tokens(self, tokens: Ints) -> Ints:
        """The vectors of tokens: (n,)."""
        ids = tokens.tolist()
        new = [token for token in dict.fromkeys(ids) if token not in self._tokens]
        if new:
            embeddings = self._weights.tokens[torch.tensor(new, device=self._weights.tokens.device)]
            self._tokens.update(zip(new, self._add_vectors(embeddings).tolist(), strict=True))
        return np.array([self._tokens[token] for token in ids], np.int64)

    def extend(self, partials: Ints, children: Ints) -> Ints:
        """The partials with one more child each: (n,)."""
        if isinstance(self._weights.composition, NoComposition):
            return partials
        keys = ((partials << 32) | children).tolist()
        known, first = self._known, len(self._partials)
        new: list[int] = []  # places of the first uses of unknown keys
        for place, key in enumerate(keys):
            if key not in known:
                known[key] = first + len(new)
                new.append(place)
        if new:
            self._append(partials[new], children[new])
        return np.array([known[key] for key in keys], np.int64)

    def _append(self, previous: Ints, children: Ints) -> None:
        before, size = padded(previous), len(previous)
        gates = self.vectors.get(padded(children), self._columns(0))
        _present(self._weights.forward_hidden).add_product_(gates, self._hidden.get(before))
        cell = self._cell.get(before)
        rows = (states.reserve(len(before), size) for states in (self._hidden, self._cell))
        lstm_cell_(gates, cell, *rows)
        parents = self._partials.all[previous]
        none = np.full(size, -1)
        columns = (previous, children, parents[:, OPENED_LABEL], parents[:, NUM_CHILDREN] + 1, none)
        self._partials.append(np.stack(columns, 1))

    def compose(self, partials: Ints, outputs: Tensor, sources: Ints) -> Ints:
        """The vectors of closed constituents: (n,). ``outputs[sources]`` (n, E) are o before REDUCE, for attention."""
        composition = self._weights.composition
        if isinstance(composition, NoComposition):
            return np.full(len(partials), self._reduce_vector, dtype=np.int64)
        if self._weights.attention is not None:
            return self._attend(self._weights.attention, partials, outputs, sources)
        todo = np.unique(partials[self._partials.all[partials, COMPOSED] < 0])
        if len(todo):
            self._compose(todo)
        composed: Ints = self._partials.all[partials, COMPOSED]
        return composed

    def _compose(self, todo: Ints) -> None:
        composed = _present(self._weights.composed)
        todo = self._longest_first(todo)
        forward = self._hidden.get(padded(todo))
        ends = torch.cat([forward, self._run_backward(todo)], 1)
        self._partials.all[todo, COMPOSED] = self._add_vectors(composed(ends).relu_()[: len(todo)])

    def _longest_first(self, partials: Ints) -> Ints:
        return partials[np.argsort(-self._partials.all[partials, NUM_CHILDREN], kind="stable")]

    def _run_backward(self, partials: Ints) -> Tensor:
        """Last states of the backward LSTM over label and children, last child first; partials longest first."""
        labels = padded(self._partials.all[partials, OPENED_LABEL])
        index = to_device(labels, self._weights.initial.device)
        hidden, cell = (state[index] for state in self._backward_start)
        last = hidden
        for at, new in self._steps_back(partials, hidden, cell):
            last[: len(at)] = new[: len(at)]
        return last

    def _steps_back(self, partials: Ints, hidden: Tensor, cell: Tensor) -> Iterator[tuple[Ints, Tensor]]:
        """Steps of the backward LSTM on the last child of each partial, the one before, ...; longest first.

        Gives the partials that end in the child, and the states, in a padded number of rows.
        """
        lengths, recurrent = self._partials.all[partials, NUM_CHILDREN], _present(self._weights.backward_hidden)
        for step in range(int(lengths[0])):
            partials = partials[: int(np.searchsorted(-lengths, -step))]  # those with more than ``step`` children
            at = self._partials.all[partials]
            gates = self.vectors.get(padded(at[:, CHILD]), self._columns(1))
            recurrent.add_product_(gates, hidden[: gates.shape[0]])
            hidden, cell = lstm_cell_(gates, cell[: gates.shape[0]])
            yield partials, hidden
            partials = at[:, PREVIOUS]

    def _attend(self, attention: AttentionWeights, partials: Ints, outputs: Tensor, sources: Ints) -> Ints:
        """Composition by attention, which looks at o: only the states of the children are shared."""
        distinct = self._longest_first(np.unique(partials))
        states = list(self._run_both(distinct))
        place = np.empty(int(distinct.max()) + 1, np.int64)
        place[distinct] = np.arange(len(distinct))
        lengths = self._partials.all[partials, NUM_CHILDREN]
        labels = as_index(padded(self._partials.all[partials, OPENED_LABEL]), outputs)
        summary = outputs.index_select(0, as_index(padded(sources), outputs))
        query = attention.query(torch.cat([attention.label_query[labels], summary], 1))
        attended = attend(query, states, padded(place[partials]), padded(lengths))
        t = attention.label_vector[labels]
        gate = attention.gate(torch.cat([t, attended], 1)).sigmoid_()
        composed = _present(self._weights.composed)
        return self._add_vectors(composed(attended.lerp_(t, gate)).relu_()[: len(partials)])

    def _run_both(self, partials: Ints) -> Iterator[Tensor]:
        """States (rows, E) of both directions at the last child of each partial, the one before, ...; longest first."""
        zero = self._weights.initial.new_zeros(rounded(len(partials)), self._weights.direction_size)
        for at, backward in self._steps_back(partials, zero, zero):
            yield torch.cat([self._hidden.get(padded(at)), backward], 1)

    def keep(self, vectors: Ints, partials: Ints) -> tuple[Ints, Ints]:
        """Drop all but the given ones and what they were made from; returns the new numbers of old ones."""
        used_partials = _marked(len(self._partials), partials, self.nothing_open + 1)
        _mark_previous(used_partials, self._partials.all[:, PREVIOUS])
        used_vectors = _marked(len(self.vectors), vectors, self._num_fixed_vectors)
        used_vectors[self._partials.all[used_partials, CHILD]] = True
        new_vectors, new_partials = renumbering(used_vectors), renumbering(used_partials)
        self.vectors.keep(np.flatnonzero(used_vectors))
        for rows in (self._hidden, self._cell):
            rows.keep(np.flatnonzero(used_partials))
        self._partials.keep(used_partials)
        table = self._partials.all
        table[:, PREVIOUS] = new_partials[table[:, PREVIOUS]]
        table[:, CHILD] = new_vectors[table[:, CHILD]]
        table[:, COMPOSED] = -1
        self._known.clear()
        self._tokens.clear()
        return new_vectors, new_partials

    @property
    def _num_fixed_vectors(self) -> int:
        return self._weights.num_labels + (self._reduce_vector >= 0)

    def copy(self) -> ConstituentTable:
        """An independent copy."""
        new = copy.copy(self)
        new.vectors, new._hidden, new._cell = self.vectors.copy(), self._hidden.copy(), self._cell.copy()
        new._partials = self._partials.copy()
        new._known, new._tokens = dict(self._known), dict(self._tokens)
        return new


def attend(query: Tensor, states: list[Tensor], place: Ints, lengths: Ints) -> Tensor:
    """sum_i softmax_i(h_i . query) h_i for each query (n, E); ``states[j][place]`` is h of the j-th child from the end.

    Sums over children are made one by one, so that a row does not depend on the length of others.
    """
    index = as_index(place, query)
    present = as_index(lengths, query)[:, None] > torch.arange(len(states), device=query.device)  # (n, children)
    rows = [state.index_select(0, index.clamp(max=state.shape[0] - 1)) for state in states]
    scores = torch.stack([(state * query).sum(1) for state in rows], 1).masked_fill_(~present, -torch.inf)
    weights = scores.sub_(scores.amax(1, keepdim=True)).exp_()
    total, attended = torch.zeros_like(weights[:, 0]), torch.zeros_like(query)
    for child, state in enumerate(rows):
        total += weights[:, child]
        attended.addcmul_(weights[:, child, None], state)
    return attended.div_(total[:, None])


def _present(affine: Affine | None) -> Affine:
    assert affine is not None  # with composition there are two directions and an output layer
    return affine


def _marked(size: int, used: Ints, num_fixed: int) -> Bools:
    marked = np.zeros(size, np.bool_)
    marked[:num_fixed] = True
    marked[used] = True
    return marked


def _mark_previous(marked: Bools, previous: Ints) -> None:
    current = previous[marked]
    while len(current):
        current = current[~marked[current]]
        marked[current] = True
        current = previous[current]
