"""The arena of stacks: a row for every position that was pushed, whose keys and values are written once.

A row names the row below it on the stack, and the row before it among those that are seen. So an analysis is the number
of its top row, and nothing is copied but the rows at which queries look. A closed constituent takes two queries in one
pass (see ``positions.py``): COMPOSE, whose keys and values are those of the new row, and STACK, which sees that row and
predicts, and whose own keys and values are not needed later.

Shapes: n new rows, m queries (those of the new rows, then those of STACK), S rows that a query sees, D units, H heads.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from treelm.models.layers.attention import normalised_entropies, value_norms
from treelm.models.layers.devices import to_device
from treelm.models.search.attention import (
    NONE,
    BlockWeights,
    Product,
    Queries,
    lists_along,
    lists_of_seen,
    read_layer,
    with_fillers,
)
from treelm.models.search.batch_invariant import Affine, padded, padded_rows
from treelm.models.search.rows import Bools, FloatRows, Floats, IntRows, Ints, renumbered, renumbering
from treelm.models.search.validity import EMPTY
from treelm.models.transformer_grammar.config import TransformerGrammarConfig
from treelm.models.transformer_grammar.positions import relative, seen_by_heads

# Columns of a row.
BELOW = 0  # the row below on the stack; -1 below START
BEFORE = 1  # the row before among those that are seen: the one below or, if nothing is hidden, the last one pushed
OPENED = 2  # the row of the innermost open nonterminal, this row itself if it is one; -1 for none
LABEL = 3  # of the innermost open nonterminal; -1 for none
NUM_OPEN = 4
NUM_CONSECUTIVE = 5  # NT actions, as the validity rule counts them
TOP = 6  # EMPTY, WORD, CONSTITUENT or OPEN
IN_WORD = 7  # 1 if a token that does not end its word
DEPTH = 8  # of the position in the tree
HEIGHT = 9  # number of rows below on the stack
PLACE = 10  # number of positions pushed before
NUM_BEFORE = 11  # number of rows before among those that are seen
NUM_CHILDREN = 12  # complete children of the innermost open nonterminal; a word in pieces is one
NUM_NEEDED = 13  # the least number of words until a binary tree is complete; not used for other trees
NUM_COLUMNS = 14

_ROOM = 1 << 6  # so many rows are kept without looking for unused ones; few, since every copy of a beam has them

_MEASURES = {"depth": DEPTH, "height": HEIGHT, "place": PLACE}


class Composing(NamedTuple):
    """The new rows that take others off the stack (r,): ``num_parts`` rows, from ``tops`` on down."""

    rows: Ints
    tops: Ints
    num_parts: Ints


NOTHING = Composing(*[np.empty(0, np.int64)] * 3)


class KeyValueStacks:
    """The table of rows: integers, keys and values of every layer, and hidden states that predict what follows."""

    def __init__(self, weights: SearchWeights, starts: Tensor | None = None) -> None:
        """Push START as row 0 or, with ``starts`` (n, D), which are added to its vector, n of them, one a sentence."""
        self._weights = weights
        config, like = weights.config, weights.tokens
        self._measure = _MEASURES[config.positions]
        self._items = IntRows(NUM_COLUMNS)
        self._layers = [FloatRows(2 * config.size, like) for _ in weights.layers]  # keys, then values
        self._outputs = FloatRows(config.size, like)
        self._vectors = FloatRows(0 if weights.composer is None else config.size, like)  # of rows
        self._keys = FloatRows(0 if weights.pointer is None else weights.pointer.labels.shape[1], like)
        vectors = weights.marks[:1] if starts is None else weights.marks[:1] + starts.to(weights.marks)
        self._num_starts = len(vectors)
        self.attention: Floats = np.zeros((0, config.num_heads, 2))
        """Normalised attention entropies of the tokens that were pushed last: (n, H, 2)."""
        self._most = _ROOM  # rows beyond which ``keep`` looks for unused ones
        items = np.zeros((self._num_starts, NUM_COLUMNS), np.int64)
        items[:, [BELOW, BEFORE, OPENED, LABEL]] = NONE
        items[:, TOP], items[:, NUM_NEEDED] = EMPTY, 1
        self.push(items, vectors)

    def __len__(self) -> int:
        """Number of rows."""
        return len(self._items)

    def starts(self, num_sentences: int) -> Ints:
        """The rows of START of n sentences (n,): the same one for all, or one each."""
        return np.arange(num_sentences) if self._num_starts > 1 else np.zeros(num_sentences, np.int64)

    def items(self, rows: Ints) -> Ints:
        """A copy of the integers of rows (n,): (n, NUM_COLUMNS)."""
        items: Ints = self._items.all[rows]
        return items

    def outputs(self, rows: Ints) -> Tensor:
        """The hidden states that predict what follows these rows (n,): (m, D), padded to a round number m."""
        return self._outputs.get(padded(rows))

    def push(
        self, items: Ints, vectors: Tensor, composing: Composing = NOTHING, logits: list[Tensor] | None = None
    ) -> Ints:
        """Push rows with these integers (n, NUM_COLUMNS) and input vectors (n, D); returns their numbers (n,).

        Those that are ``composing`` have a second query, STACK. The logits of the last layer are appended to
        ``logits``, if given.
        """
        num_rows = len(items)
        looking = items[composing.rows]
        looking[:, PLACE] += 1
        seen = self._seen(items, composing)
        rows = self._items.append(items)
        if self._weights.composer is not None:
            self._vectors.append(vectors)
        with_looking = self._items.followed_by(looking)
        again = vectors.index_select(0, to_device(composing.rows, vectors.device))
        vectors = torch.cat([vectors, again])
        queries = self._queries(with_looking, seen, vectors)
        units = queries.units
        for layer, keys_values in zip(self._weights.layers, self._layers, strict=True):
            found = logits if keys_values is self._layers[-1] else None
            units = read_layer(layer, units, queries, keys_values, num_rows, found)
        units = self._weights.norm(units)
        predicting = np.arange(num_rows)
        predicting[composing.rows] = num_rows + np.arange(len(composing.rows))
        outputs = units.index_select(0, to_device(predicting, units.device))
        self._outputs.append(outputs)
        if self._weights.pointer is not None:
            self._keys.append(self._weights.pointer.key(padded_rows(outputs))[:num_rows])
        return rows

    def push_tokens(self, items: Ints, vectors: Tensor) -> Ints:
        """Push tokens as ``push`` does, and set ``attention``, which says how widely each looks back."""
        seen, blocks = self._seen(items, NOTHING), list[Tensor]()
        rows = self.push(items, vectors, logits=blocks)
        logits = torch.cat(blocks)[: len(rows)].double()
        logits[..., 0] = -torch.inf  # itself
        distinct, places = np.unique(np.maximum(seen, 0), return_inverse=True)
        values = self._layers[-1].get(distinct, slice(self._weights.config.size, None))
        index = to_device(places.reshape(seen.shape), values.device)
        norms = value_norms(values, self._weights.value_factors)[:, index].transpose(0, 1)
        self.attention = normalised_entropies(logits, norms).cpu().numpy()
        return rows

    def composed(self, tops: Ints, num_children: Ints, labels: Tensor) -> Tensor:
        """External composition: the vectors of constituents (n, D) with these vectors of labels (n, D).

        Their children are the ``num_children`` (n,) rows from ``tops`` (n,) on down.
        """
        composer = self._weights.composer
        assert composer is not None
        if len(tops) == 0:
            return labels
        lists = lists_along(self._items.all, tops, num_children, BELOW)
        number = num_children[:, None] - 1 - np.arange(lists.shape[1])  # left to right
        missing = number < 0
        children = np.take_along_axis(lists, np.maximum(number, 0), 1)
        vectors = self._vectors.get_lists(to_device(children, labels.device))
        parts = torch.cat([labels[:, None], vectors], 1).double()
        hidden = np.concatenate([np.zeros((len(tops), 1), np.bool_), missing], 1)
        made: Tensor = composer(parts, to_device(hidden, labels.device))
        return made.to(labels.dtype)

    def keys(self, lists: Ints) -> Tensor:
        """The keys of the pointer for items that end in these rows (n, S): (n, S, P)."""
        return self._keys.get_lists(to_device(lists, self._outputs.all.device))

    def _seen(self, items: Ints, taking: Composing) -> Ints:
        """The rows that each query sees, itself first, filled up with NONE: (n + r, S)."""
        num_rows, composing, first = len(items), taking.rows, len(self._items)
        old = self._items.all
        stacks = lists_along(old, items[:, BEFORE], items[:, NUM_BEFORE], BEFORE)
        parts = lists_along(old, taking.tops, taking.num_parts, BELOW)
        seen = lists_of_seen(num_rows + len(composing), 2 + max(stacks.shape[1], parts.shape[1]))
        seen[:, 0] = first + np.arange(len(seen))
        seen[:num_rows, 1 : 1 + stacks.shape[1]] = stacks
        seen[composing, 1:] = NONE
        seen[composing, 1 : 1 + parts.shape[1]] = parts
        seen[num_rows:, 1] = first + composing
        seen[num_rows:, 2 : 2 + stacks.shape[1]] = stacks[composing]
        return seen

    def _queries(self, items: Ints, seen: Ints, vectors: Tensor) -> Queries:
        """The queries of vectors (n + r, D), which see the rows ``seen`` (n + r, S) of ``items``."""
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
        """Drop rows that analyses with these tops do not see; returns the new number of every old row.

        Nothing is dropped or copied until there may be as many unused rows as others, since those in use may be as many
        as the words of a sentence.
        """
        items = self._items.all
        if len(items) <= self._most:
            return np.arange(len(items))
        marked: Bools = np.zeros(len(items), np.bool_)
        marked[: self._num_starts] = True
        while len(tops):
            marked[tops] = True
            tops = items[tops, BEFORE]
            tops = tops[~marked[tops]]
        new, index = renumbering(marked), np.flatnonzero(marked)
        self._items.keep(index)
        others = [] if self._weights.pointer is None else [self._keys]
        others += [] if self._weights.composer is None else [self._vectors]
        for rows in (self._outputs, *others, *self._layers):
            rows.keep(index)
        items = self._items.all
        for column in (BELOW, BEFORE, OPENED):
            items[:, column] = renumbered(new, items[:, column])
        self._most = 2 * len(items) + _ROOM
        return new

    def copy(self) -> KeyValueStacks:
        """An independent copy."""
        new = copy.copy(self)
        new._items, new._outputs = self._items.copy(), self._outputs.copy()
        new._keys, new._vectors = self._keys.copy(), self._vectors.copy()
        new._layers = [rows.copy() for rows in self._layers]
        return new


@dataclass(frozen=True)
class SearchWeights:
    """The parameters of a model as the search uses them, for batch-invariant products; L labels."""

    config: TransformerGrammarConfig
    num_labels: int
    ends_word: Bools  # (V,)
    tokens: Tensor  # (V, D)
    marks: Tensor  # START, ``(X`` of every label unless bottom-up, ``X)`` of every label or one for all: (marks, D)
    layers: tuple[BlockWeights, ...]
    value_factors: Tensor  # of the last layer, for the norms of its values (``layers/attention.py``)
    norm: nn.LayerNorm
    actions: Product
    words: Affine  # (D) -> V logits, in tiny models followed by impossible tokens
    pointer: PointerWeights | None
    composer: nn.Module | None  # in float64, rounded afterwards, so that it is batch-invariant


@dataclass(frozen=True)
class PointerWeights:
    """The parameters of ``Pointer``, for queries that are scaled before they meet keys."""

    scale: float
    query: Product
    key: Product
    labels: Tensor

    def queries(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """The scaled queries of REDUCEs of these labels (n,), from outputs (n, D) in a padded number: (n, P)."""
        return (self.query(outputs) + self.labels.detach().index_select(0, labels)) * self.scale
