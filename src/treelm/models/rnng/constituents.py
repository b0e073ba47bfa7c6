"""The table of vectors and constituents that all stacks of a search share, by content.

A "partial" is an open nonterminal with its children so far: (label, c_1 ... c_n). Partials form a trie, keyed by
(partial, child), whose nodes hold the forward state of the composition LSTM. So analyses that differ elsewhere share
partials, one more child takes one LSTM step, and equal constituents are composed once. With attention, composition
looks at the stack, so only the states of the children are shared.

For example, with the labels S and NP, the partials 0, 1 and 2 are (S), (NP) and "nothing open". Analyses that have
opened (NP the dog and (NP the cat make three further ones::

    partial     3         4             5
    stands for  (NP the)  (NP the dog)  (NP the cat)
    PREVIOUS    1         3             3
    CHILD       the       dog           cat             (numbers of vectors)

REDUCE of partial 4 runs the backward LSTM over "dog" and "the", and keeps the vector of [NP the dog] in COMPOSED.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from treelm.models.layers.devices import to_device
from treelm.models.rnng.arena import AttentionWeights, SearchWeights, lstm_cell_
from treelm.models.rnng.composition import LSTMComposition, NoComposition
from treelm.models.search.batch_invariant import Affine, padded, padded_rows, rounded
from treelm.models.search.rows import FloatRows, IntRows, Ints, as_index, mark_reachable, renumbering

# Columns of a partial: the partial without its last child, this child (a vector), the label, the number of children,
# and the vector of the constituent once it has been composed, else -1.
PREVIOUS, CHILD, OPENED_LABEL, NUM_CHILDREN, COMPOSED = range(5)


class ConstituentTable:
    """All vectors and partials of a search, both referred to by the numbers of their rows."""

    def __init__(self, weights: SearchWeights) -> None:
        """Vectors and partials 0 ... N - 1 are the labels, without children; partial N is "nothing open"."""
        self._weights = weights
        self.vectors = FloatRows(weights.vectors.weight.shape[1], weights.initial)  # W x + b
        size, num_labels = weights.direction_size, weights.num_labels
        self._hidden, self._cell = FloatRows(size, weights.initial), FloatRows(size, weights.initial)
        self._partials = IntRows(5)
        self._known: dict[int, int] = {}  # (partial, child) -> partial
        self._tokens: dict[int, int] = {}  # token -> vector
        self._add_vectors(weights.labels)
        if isinstance(weights.composition, NoComposition):  # the vector that REDUCE pushes
            self._add_vectors(weights.composition.reduce_embedding.detach()[None])
        self._num_fixed = len(self.vectors)
        self._add_roots(num_labels)

    @property
    def nothing_open(self) -> int:
        """The partial that stands for no open nonterminal."""
        return self._weights.num_labels

    def _columns(self, use: int) -> slice:
        """The columns of ``vectors`` with W x of the forward (0) or backward (1) composition LSTM."""
        start, width = 4 * self._weights.hidden_size, 4 * self._weights.direction_size
        return slice(start + use * width, start + (use + 1) * width)

    def _add_vectors(self, vectors: Tensor) -> Ints:
        first, rows = len(self.vectors), padded_rows(vectors)
        self._weights.vectors(rows, out=self.vectors.reserve(len(rows), len(vectors)))
        return np.arange(first, len(self.vectors))

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
        """The vectors of tokens (n,), which are added if they are new: (n,)."""
        ids = tokens.tolist()
        new = [token for token in dict.fromkeys(ids) if token not in self._tokens]
        if new:
            embeddings = self._weights.tokens[torch.tensor(new, device=self._weights.tokens.device)]
            self._tokens.update(zip(new, self._add_vectors(embeddings).tolist(), strict=True))
        return np.array([self._tokens[token] for token in ids], np.int64)

    def extend(self, partials: Ints, children: Ints) -> Ints:
        """The partials (n,) with one more child each (n,), which are added if they are new: (n,)."""
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
        """The vectors of the constituents that these partials (n,) become: (n,).

        ``outputs[sources]`` (n, E) are the outputs o before REDUCE, at which attention looks.
        """
        composition = self._weights.composition
        if isinstance(composition, NoComposition):
            return np.full(len(partials), self._num_fixed - 1, dtype=np.int64)
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
        """The last states of the backward LSTM over the label and the children, from the last to the first: (m, E).

        The partial with most children must be the first.
        """
        labels = padded(self._partials.all[partials, OPENED_LABEL])
        index = to_device(labels, self._weights.initial.device)
        hidden, cell = (state[index] for state in self._backward_start)
        last = hidden
        for at, new in self._steps_back(partials, hidden, cell):
            last[: len(at)] = new[: len(at)]
        return last

    def _steps_back(self, partials: Ints, hidden: Tensor, cell: Tensor) -> Iterator[tuple[Ints, Tensor]]:
        """Steps of the backward LSTM on the last child of each partial, then on the one before it, and so on.

        The partial with most children must be the first. Each step gives the partials that end in the child, and the
        states after the child, padded.
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
        """Composition by attention (see ``AttentionComposition``), for which partials share the states of children."""
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
        """States (m, E) of both directions at the last child of each partial, then at the one before it, and so on."""
        zero = self._weights.initial.new_zeros(rounded(len(partials)), self._weights.direction_size)
        for at, backward in self._steps_back(partials, zero, zero):
            yield torch.cat([self._hidden.get(padded(at)), backward], 1)

    def keep(self, vectors: Ints, partials: Ints) -> tuple[Ints, Ints]:
        """Keep these vectors and partials, and those that they are made of; returns the new numbers of old ones."""
        used_partials, used_vectors = np.zeros(len(self._partials), np.bool_), np.zeros(len(self.vectors), np.bool_)
        used_partials[: self.nothing_open + 1] = used_partials[partials] = True
        mark_reachable(used_partials, self._partials.all[:, PREVIOUS])
        used_vectors[: self._num_fixed] = used_vectors[vectors] = True
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

    def copy(self) -> ConstituentTable:
        """An independent copy."""
        new = copy.copy(self)
        new.vectors, new._hidden, new._cell = self.vectors.copy(), self._hidden.copy(), self._cell.copy()
        new._partials = self._partials.copy()
        new._known, new._tokens = dict(self._known), dict(self._tokens)
        return new


def attend(query: Tensor, states: list[Tensor], place: Ints, lengths: Ints) -> Tensor:
    """sum_i softmax_i(h_i . query) h_i for each query (n, E), over ``lengths`` (n,) children: (n, E).

    ``states[j][place]`` is h of the j-th child from the end. Sums are made child by child, so that the bits of a query
    do not depend on the lengths of others.
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
