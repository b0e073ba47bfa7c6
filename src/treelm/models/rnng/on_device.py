"""The machine of an RNNG on a GPU: all stacks in one growing table there (see ``search/on_device.py``).

As in ``arena.py``, a row is an item on stacks and names the row below. It also holds the item's vector, and the state
of the forward composition LSTM after it. A constituent is composed by walking from its last child to its first, along
``SIBLING``. There is no table of constituents: if two analyses build the same one, it is composed twice.
"""

from __future__ import annotations

import torch
from torch import Tensor

from treelm.models.layers.few_calls import cell_forward
from treelm.models.rnng.arena import SearchWeights
from treelm.models.rnng.composition import LSTMComposition, NoComposition
from treelm.models.search.batch_invariant import Affine
from treelm.models.search.device_rows import (
    IN_WORD,
    NUM_BEFORE,
    NUM_COMMON,
    NUM_NEEDED,
    NUM_OPEN,
    DeviceRows,
    ValidActions,
    masked_log_softmax,
)
from treelm.models.search.machine import BINARY_GROUPS
from treelm.models.search.on_device import RowCounts
from treelm.models.search.validity import CONSTITUENT, EMPTY, OPEN, WORD
from treelm.trees.transitions import FIRST_NT, REDUCE

# Columns of integers of a row, of which some are numbers of rows. Names that ``arena.py`` has too mean the same.
BELOW, UNDER, OPENED = range(NUM_COMMON, NUM_COMMON + 3)
LAST = 7  # the last child so far of the innermost open nonterminal
SIBLING = 8  # the child before this one
REFERENCES = slice(BELOW, SIBLING + 1)
LABEL, NUM_CONSECUTIVE, TOP = range(9, 12)
NUM_CHILDREN = 12  # of the innermost open nonterminal
PIECES = 13  # number of rows of the word or constituent that ends here
NUM_COLUMNS = 14


class DeviceStacks(DeviceRows):
    """Stacks of one search; a ``DeviceMachine``. E, H, L: sizes of vectors and of states, layers of the stack."""

    def __init__(self, weights: SearchWeights, *, starts: Tensor | None = None) -> None:
        """Push the initial item or, with ``starts`` (n, E), which are added to its embedding, one for each sentence."""
        config, self._weights = weights.config, weights
        size, states = weights.tokens.shape[1], [config.hidden_size] * (2 * len(weights.hidden))
        super().__init__(
            num_actions=weights.num_actions,
            num_columns=NUM_COLUMNS,
            # The vector, both parts of the forward state, all layers' hidden and cell states, o.
            widths=[size, weights.direction_size, weights.direction_size, *states, size],
            words=weights.words,
            tokens=weights.tokens,
        )
        self.ends_by_closing = config.order == "top-down"
        self.num_groups = BINARY_GROUPS if config.is_binary else 1
        self._composes = not isinstance(weights.composition, NoComposition)
        self._hidden = [_library_order(layer, config.hidden_size) for layer in weights.hidden]
        self._deeper = [_library_order(layer, config.hidden_size) for layer in weights.deeper]
        inputs = [4 * config.hidden_size, 4 * weights.direction_size, 4 * weights.direction_size]
        columns = zip(
            *(torch.split(one, inputs, -1) for one in (weights.vectors.weight, weights.vectors.bias)), strict=True
        )
        own, forward, backward = (_library_order(Affine(*part), part[1].shape[0] // 4) for part in columns)
        self._inputs = Affine(torch.cat([own.weight, forward.weight], 1), torch.cat([own.bias, forward.bias]))
        self._directions = [forward, backward]
        if self._composes:
            directions = (weights.forward_hidden, weights.backward_hidden)
            self._recurrent = [_library_order(_present(one), weights.direction_size) for one in directions]
        self._valid = ValidActions(config, weights.num_labels, weights.initial.device)
        self._ends_word = torch.from_numpy(weights.ends_word).to(weights.initial.device)
        self._fill(starts)

    def _fill(self, starts: Tensor | None) -> None:
        """Allocate the table with the initial items, and compute the states after each label, which need no stack."""
        weights = self._weights
        initial = weights.initial if starts is None else weights.initial + starts.to(weights.initial)
        device, size = initial.device, weights.direction_size
        self._num_initial, self._num_read = len(initial), 0
        self._labels = self._inputs(weights.labels)
        zero = weights.labels.new_zeros(len(weights.labels), size)
        self._opened, self._from_last = (zero, zero), (zero, zero)
        if isinstance(weights.composition, LSTMComposition):
            none = torch.zeros_like(self._labels[:, 4 * weights.hidden_size :])
            self._opened = cell_forward(self._labels[:, 4 * weights.hidden_size :], none, zero)[:2]
            self._from_last = cell_forward(self._directions[1](weights.labels), none, zero)[:2]
        items = torch.zeros((len(initial), NUM_COLUMNS), dtype=torch.int64, device=device)
        items[:, REFERENCES] = torch.arange(len(initial), device=device)[:, None]
        items[:, TOP], items[:, NUM_NEEDED] = EMPTY, 1
        nothing = [initial.new_zeros(len(initial), part.stop - part.start) for part in self._columns]
        self._reserve(len(initial))
        self._floats.zero_()
        self._push(items, initial, self._inputs(initial), nothing[1:3], is_first=True)

    def shift(self, tops: Tensor, tokens: Tensor) -> Tensor:
        """The rows after SHIFT of one token each: (n,)."""
        self._num_read, self._height = self._num_read + 1, self._height + 1
        items = self._items[tops]
        new, in_word = items.clone(), items[:, IN_WORD]
        new[:, BELOW], new[:, LABEL], new[:, NUM_CONSECUTIVE], new[:, TOP] = tops, -1, 0, WORD
        new[:, UNDER] = torch.where(in_word == 1, items[:, UNDER], tops)
        new[:, IN_WORD] = (~self._ends_word[tokens]).long()
        new[:, NUM_NEEDED] -= 1 - in_word
        new[:, PIECES] = 1 + in_word * items[:, PIECES]
        vectors = self._weights.tokens[tokens]
        return self._push_child(new, vectors)

    def apply(self, tops: Tensor, actions: Tensor, row_counts: RowCounts) -> Tensor:
        """The rows after one action each (m,), none of which is SHIFT or ends the sentence; row 0 for action -1."""
        closes, opens = actions == REDUCE, actions > REDUCE
        lengths, steps = self._items[:, NUM_CHILDREN][tops] * closes, torch.arange(self._num_read, device=tops.device)
        longer = (lengths[:, None] > steps).sum(0) if self._composes else None
        closed, opened, rows, num_longer = self._chosen(closes, opens, row_counts, lengths, longer)
        pieces = list[int]()
        if self._composes and not self.ends_by_closing:
            pieces = row_counts(((self._items[:, PIECES][tops] * opens)[:, None] > steps).sum(0), len(tops))
        self._height += 1
        if len(closed):
            self._close(tops[closed], lengths[closed], num_longer)
        if len(opened):
            self._open(tops[opened], actions[opened].clamp(min=FIRST_NT) - FIRST_NT, sum(map(bool, pieces)))
        return rows.clamp(max=self._length - 1)

    def _open(self, tops: Tensor, labels: Tensor, most_pieces: int) -> None:
        """Push nonterminals with these labels on the rows ``tops``; left corners have at most ``most_pieces`` rows."""
        new = self._items[tops]
        new[:, BELOW], new[:, LABEL] = tops, labels
        new[:, OPENED] = self._length + torch.arange(len(tops), device=tops.device)
        new[:, NUM_OPEN] += 1
        new[:, NUM_CONSECUTIVE] += 1
        new[:, NUM_NEEDED] += 1
        new[:, TOP], new[:, IN_WORD] = OPEN, 0
        state = [part[labels] for part in self._opened]
        if self.ends_by_closing:
            new[:, UNDER], new[:, NUM_CHILDREN] = tops, 0
        else:  # UNDER stays that of the left corner, whose pieces are the first children
            pieces = new[:, PIECES]
            new[:, LAST], new[:, NUM_CHILDREN] = tops, pieces
            corners = [tops]
            for _ in range(most_pieces):
                corners.append(self._items[:, BELOW][corners[-1]])
            for number in reversed(range(most_pieces)):
                self._extended(0, state, corners[number], pieces > number)
        new[:, NUM_BEFORE] += 1
        self._push(new, self._weights.labels[labels], self._labels[labels], state)

    def _close(self, tops: Tensor, lengths: Tensor, num_longer: list[int]) -> None:
        """Push closed constituents, the longest first; ``num_longer`` of them have more than 0, 1, ... children."""
        items = self._items[tops]
        opened = self._items[items[:, OPENED]]
        new = self._items[opened[:, UNDER]]
        new[:, BELOW] = opened[:, UNDER] if self._composes else tops
        new[:, NUM_BEFORE] = self._items[:, NUM_BEFORE][new[:, BELOW]]
        new[:, UNDER], new[:, LABEL] = opened[:, UNDER], -1
        new[:, NUM_CONSECUTIVE] = 0 if self.ends_by_closing else items[:, NUM_CONSECUTIVE]
        new[:, NUM_NEEDED], new[:, TOP], new[:, IN_WORD], new[:, PIECES] = items[:, NUM_NEEDED], CONSTITUENT, 0, 1
        if isinstance(self._weights.composition, NoComposition):
            vectors = self._weights.composition.reduce_embedding.detach().expand(len(tops), -1)
        else:
            vectors = self._composed(tops, items[:, LAST], opened[:, LABEL].clamp(min=0), lengths, num_longer)
        self._push_child(new, vectors)

    def _composed(self, tops: Tensor, child: Tensor, labels: Tensor, lengths: Tensor, num_longer: list[int]) -> Tensor:
        """The vectors of constituents with these tops, last children, labels and numbers of children: (n, E)."""
        ends, chain, states = [part[labels] for part in self._from_last], list[Tensor](), list[Tensor]()
        for step, count in enumerate(num_longer):
            child = child[:count]
            if len(child) == 0:
                break
            states.append(self._extended(1, ends, child, lengths[: len(child)] > step))
            chain.append(child)
            child = self._items[:, SIBLING][child]
        forward = [self._get(part, tops) for part in (1, 2)]
        if self._weights.attention is None:
            vectors = torch.cat([forward[0], ends[0]], 1)
        else:  # the states at all children, of which those at a left corner stand nowhere
            forward = [torch.zeros_like(part) for part in forward]
            for step, child in reversed(list(enumerate(chain))):
                new = self._extended(0, forward, child, lengths[: len(child)] > step)
                states[step] = torch.cat([new, states[step]], 1)
            vectors = self._attended(tops, labels, lengths, states)
        return _present(self._weights.composed)(vectors).relu_()

    def _extended(self, direction: int, state: list[Tensor], items: Tensor, present: Tensor) -> Tensor:
        """One step of a composition LSTM on the vectors of items (n,), for the first n rows of ``state``.

        Rows that are present are changed in place. Returns the hidden states (n, size) after the step.
        """
        before = [part[: len(items)] for part in state]
        gates = self._directions[direction](self._get(0, items))
        after = cell_forward(gates, self._recurrent[direction](before[0]), before[1])[:2]
        for old, new in zip(before, after, strict=True):
            old.copy_(new.where(present[:, None], old))
        return after[0]

    def _attended(self, tops: Tensor, labels: Tensor, lengths: Tensor, states: list[Tensor]) -> Tensor:
        """Gated attention over the states of children, the last first: (n, E). See ``composition.py``."""
        attention = self._weights.attention
        assert attention is not None
        query = attention.query(torch.cat([attention.label_query[labels], self._get(-1, tops)], 1))
        padded = query.new_zeros(len(tops), len(states), query.shape[1])
        for step, one in enumerate(states):
            padded[: len(one), step] = one
        present = lengths[:, None] > torch.arange(len(states), device=tops.device)
        scores = (padded @ query[..., None])[..., 0].masked_fill(~present, -torch.inf)
        attended = (scores.softmax(1)[:, None] @ padded)[:, 0]
        t = attention.label_vector[labels]
        gate = attention.gate(torch.cat([t, attended], 1)).sigmoid_()
        return attended.lerp(t, gate)

    def _push_child(self, items: Tensor, vectors: Tensor) -> Tensor:
        """Push words or constituents, which are children of the innermost open nonterminal."""
        new_rows = self._length + torch.arange(len(items), device=items.device)
        items[:, SIBLING], items[:, LAST] = items[:, LAST], new_rows
        items[:, NUM_CHILDREN] += 1
        items[:, NUM_BEFORE] += 1
        inputs, under = self._inputs(vectors), items[:, UNDER].where(items[:, TOP] != WORD, items[:, BELOW])
        state = [self._get(part, under) for part in (1, 2)]
        if self._composes:
            gates = inputs[:, 4 * self._weights.hidden_size :]
            state = list(cell_forward(gates, self._recurrent[0](state[0]), state[1])[:2])
        return self._push(items, vectors, inputs, state)

    def _push(
        self, items: Tensor, vectors: Tensor, inputs: Tensor, state: list[Tensor], *, is_first: bool = False
    ) -> Tensor:
        """Push items; returns their rows. ``inputs`` are products of their vectors with input weights.

        ``state`` are the hidden and the cell state of the forward composition LSTM after each item.
        """
        weights, below, first = self._weights, items[:, BELOW], self._length
        from_input, parts = inputs[:, : 4 * weights.hidden_size], [vectors, *state]
        for layer, hidden in enumerate(self._hidden):
            before, cell = self._get(3 + 2 * layer, below), self._get(4 + 2 * layer, below)
            parts += cell_forward(from_input, hidden(before), cell)[:2]
            if layer < len(self._deeper):
                from_input = self._deeper[layer](parts[-2])
        outputs = weights.output(parts[-2]).relu_()
        only_child = items[:, UNDER] == items[:, OPENED]
        valid = self._valid(*(items[:, one] for one in (NUM_OPEN, NUM_CONSECUTIVE, TOP, IN_WORD)), only_child)
        log_probs = masked_log_softmax(weights.actions(outputs)[:, : self.num_actions], valid)
        self._reserve(0 if is_first else len(items))
        rows = slice(first, first + len(items))
        self._items[rows], self._floats[rows], self._log_probs[rows] = items, torch.cat([*parts, outputs], 1), log_probs
        self._length = rows.stop
        return torch.arange(rows.start, rows.stop, device=items.device)

    def reachable(self, tops: Tensor) -> tuple[Tensor, Tensor]:
        """How many of the rows up to each one are needed for these tops (rows,), and the depth of the deepest top."""
        needed = torch.zeros(self._length, dtype=torch.int32, device=tops.device)
        needed[: self._num_initial] = 1
        needed.index_fill_(0, tops.flatten(), 1)
        step, reached = self._items[: self._length, BELOW], 1
        while reached < self._height:  # below, two below, four below, ...
            needed = needed.scatter_reduce(0, step, needed, "amax")
            step, reached = step[step], 2 * reached
        return needed.cumsum(0), self._items[:, NUM_BEFORE][tops].max()

    def keep(self, number: Tensor, count: int, depth: int) -> None:
        """Keep the ``count`` rows that ``reachable`` has counted in ``number``: row i becomes ``number[i] - 1``."""
        super().keep(number, count, depth)
        references = self._items[:count, REFERENCES]
        references.copy_(number[references] - 1)


def _library_order(affine: Affine, size: int) -> Affine:
    """Change the order of gates i, f, o, g, the columns of the product, to that of the library's cell: i, f, g, o."""
    parts = (
        part.reshape(*part.shape[:-1], 4, size)[..., [0, 1, 3, 2], :].flatten(-2)
        for part in (affine.weight, affine.bias)
    )
    return Affine(*parts)


def _present(affine: Affine | None) -> Affine:
    assert affine is not None
    return affine
