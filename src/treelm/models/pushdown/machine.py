"""The machine of a model with pushdown layers: it reads tokens on many analyses at once, and scores attachments.

An analysis takes two actions for each token: SHIFT, after which only an attachment is valid, and the attachment, whose
number is 1 + the number of constituents that it closes. The network reads the token once it has attached. Then SHIFT
follows or, if the stack is one constituent, FINISH. For example, ((the dog) barks) is SHIFT 1 SHIFT 2 SHIFT 2 FINISH.
See ``plan.py`` for what attachments and the tape are.

A SHIFT adds a row, and so does an attachment. The row of an attachment is a position: its keys, values and hidden state
are written once. The tape changes with later attachments, but depths are no part of keys: the position that attends
adds them to its logits. A row names the row of the position before it, and the row below it on the stack, so an
analysis is the number of its last row. What a position sees, all rows before it and their depths, is its path, which is
kept as long as the row may be continued.

Shapes: n rows, S rows that a query sees, D units, C constituents on a stack, V tokens.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from treelm.models.layers.devices import to_device
from treelm.models.pushdown.config import PushdownConfig
from treelm.models.search.analyses import Analyses, AnalysisTable
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
from treelm.models.search.batch_invariant import Affine, blocks, padded, padded_rows
from treelm.models.search.machine import Machine
from treelm.models.search.rows import Bools, FloatRows, Floats, IntRows, Ints, renumbered, renumbering
from treelm.models.search.validity import log_softmax
from treelm.trees.transitions import SHIFT

ITSELF = 1
"""The attachment that closes nothing; that which closes c constituents has the number ITSELF + c."""


class TapeMachine(Machine):
    """The rows and histories of one search."""

    rows: TapeRows

    def __init__(self, weights: SearchWeights) -> None:
        """Start with START alone."""
        num_closed = np.arange(weights.config.num_actions) - ITSELF  # SHIFT, attachments, FINISH
        num_closed[[SHIFT, -1]] = 0
        super().__init__(len(num_closed), ends_by_closing=False, num_closed=num_closed)
        self.weights = weights
        self.rows = TapeRows(weights)

    def start(self, num_sentences: int) -> Analyses:
        """One analysis for each sentence, before its first token."""
        top, zero = np.zeros(num_sentences, np.int64), np.zeros(num_sentences)
        return self._read(AnalysisTable(np.arange(num_sentences), zero, zero, top, top - 1))

    def shift(self, analyses: AnalysisTable, tokens: Ints) -> Analyses:
        """SHIFT one token in each of these analyses; the scores already include it."""
        top = self.rows.shift(analyses.top, tokens)
        history = self.histories.append(analyses.history, np.full(len(top), SHIFT))
        new = AnalysisTable(analyses.sentence, analyses.score, analyses.deficit, top, history)
        logits, heights = self.rows.attachment_logits(top)
        items, bound = self.rows.items(top), self.weights.config.max_stack
        before = self.rows.items(items[:, BEFORE])
        ends, continues = items[:, IN_WORD] == 0, before[:, IN_WORD]  # its word, that of the token before
        least = np.maximum(continues, np.where(ends, heights + 1 - bound, 0))[:, None]
        most = np.where(ends, heights, continues)[:, None]
        closes = np.arange(logits.shape[1])
        log_probs = np.full((len(top), self.num_actions), -np.inf)
        log_probs[:, ITSELF:-1] = log_softmax(logits, (closes >= least) & (closes <= most))
        return Analyses(**vars(new), outputs=self.outputs(top), log_probs=log_probs)

    def apply(self, analyses: Analyses, sources: Ints, actions: Ints, score: Floats) -> Analyses:
        """The successors of ``analyses[sources]`` by attachments, with their scores."""
        top = self.rows.attach(analyses.top[sources], actions - ITSELF)
        history = self.histories.append(analyses.history[sources], actions)
        return self._read(AnalysisTable(analyses.sentence[sources], score, analyses.deficit[sources], top, history))

    def _read(self, new: AnalysisTable) -> Analyses:
        """Analyses whose last token has attached, with log p of SHIFT and, if the stack is one constituent, FINISH."""
        items, outputs = self.rows.items(new.top), self.rows.outputs(new.top)
        logits = self.weights.finish(outputs)[: len(new), 0].double().cpu()
        may_end = (items[:, HEIGHT] == 1) & (items[:, IN_WORD] == 0)
        log_probs = np.full((len(new), self.num_actions), -np.inf)
        log_probs[:, SHIFT] = np.where(may_end, functional.logsigmoid(-logits).numpy(), 0.0)
        log_probs[:, -1] = np.where(may_end, functional.logsigmoid(logits).numpy(), -np.inf)
        return Analyses(**vars(new), outputs=outputs[: len(new)], log_probs=log_probs)

    def num_open(self, tops: Ints) -> Ints:
        """Constituents on the stack, and a token that has not attached yet: (n,)."""
        items = self.rows.items(tops)
        num_open: Ints = items[:, HEIGHT] + (items[:, TOKEN] >= 0)
        return num_open

    def towards_end(self, analyses: Analyses) -> Bools:
        """Mark the actions after which the sentence may end without another SHIFT: closing all, and FINISH."""
        heights = self.rows.items(analyses.top)[:, HEIGHT]
        mask = np.zeros(analyses.log_probs.shape, np.bool_)
        mask[np.arange(len(heights)), ITSELF + heights] = True
        mask[:, -1] = True
        return mask


# Columns of a row.
BEFORE = 0  # the row of the position before; -1 before START
BELOW = 1  # the row that ends the constituent below the top one on the stack; -1 for none
PLACE = 2  # number of tokens before; START has 0
HEIGHT = 3  # number of constituents on the stack
FIRST = 4  # the place where the top constituent begins
CLOSED = 5  # number of constituents that the token has closed
IN_WORD = 6  # 1 for a token that does not end its word
TOKEN = 7  # the token of a row that has not attached yet; -1 for a position
POSITION = 8  # the number of its keys, values and hidden state; -1 for a row that has not attached yet
PATH = 9  # the number of its path; -1 if it has none any more
NUM_COLUMNS = 10

_ROOM = 1 << 10  # so many rows are kept without looking for unused ones
_ROWS = 64  # rows for which the vectors of constituents are gathered at once


class TapeRows:
    """The table of rows: their integers, the keys and values of positions in every layer, and their paths."""

    def __init__(self, weights: SearchWeights) -> None:
        """Read START, which is row 0."""
        self._weights = weights
        config, like = weights.config, weights.tokens
        self._items = IntRows(NUM_COLUMNS)
        self._layers = [FloatRows(2 * config.size, like) for _ in weights.layers]  # keys, then values
        self._outputs, self._keys = FloatRows(config.size, like), FloatRows(config.size, like)
        self._paths = Paths()
        self._most = _ROOM  # rows beyond which ``keep`` looks for unused ones
        start = np.zeros((1, NUM_COLUMNS), np.int64)
        start[0, [BEFORE, BELOW, TOKEN]] = NONE
        path = lists_of_seen(1, 1)
        path[0, 0] = 0
        self._read(start, weights.start, path, np.zeros_like(path))

    def __len__(self) -> int:
        """Number of rows."""
        return len(self._items)

    def items(self, rows: Ints) -> Ints:
        """A copy of the integers of rows (n,): (n, NUM_COLUMNS)."""
        items: Ints = self._items.all[rows]
        return items

    def outputs(self, rows: Ints) -> Tensor:
        """Hidden states (m, D) of positions or, for rows that have not attached yet, of those before; padded."""
        items = self._items.all
        positions = np.where(items[rows, TOKEN] == NONE, rows, items[rows, BEFORE])
        return self._outputs.get(padded(items[positions, POSITION]))

    def shift(self, tops: Ints, tokens: Ints) -> Ints:
        """Add rows of tokens (n,), which have not attached yet, after positions ``tops`` (n,); returns the rows."""
        new = self.items(tops)
        new[:, BEFORE], new[:, TOKEN] = tops, tokens
        new[:, [POSITION, PATH]] = NONE
        new[:, IN_WORD] = ~self._weights.ends_word[tokens]
        return self._items.append(new)

    def attachment_logits(self, rows: Ints) -> tuple[Floats, Ints]:
        """The logits of attachments of rows that have not attached yet (n, M), and the heights of their stacks (n,).

        Column 0 is attaching to itself, the others are attaching to the constituents on the stack, from the top. M is
        the same for all stacks, so that sums over columns are batch-invariant; columns below the bottom are not logits.
        """
        head, old = self._weights.attachment, self._items.all
        before = old[rows, BEFORE]
        states = self._outputs.get(padded(old[before, POSITION]))
        tokens = to_device(padded(old[rows, TOKEN]), states.device)
        queries, own = head.queries(states, self._weights.tokens.index_select(0, tokens))
        by_distance = head.distances(queries)
        heights = old[before, HEIGHT]
        constituents = lists_along(old, before, heights, BELOW)
        seen = np.maximum(constituents, 0)
        distance = (old[before, PLACE][:, None] + 1 - old[seen, PLACE]).clip(0, self._weights.config.max_distance)
        index = to_device(distance, states.device)
        positions = to_device(old[seen, POSITION], states.device)
        logits = queries.new_zeros(len(rows), self._weights.config.num_attachments)
        logits[:, 0] = (own + by_distance[:, 0])[: len(rows)]
        for block in blocks(len(rows), _ROWS):
            products = (self._keys.get_lists(positions[block]) * queries[block, None]).sum(2)
            logits[block, 1 : 1 + constituents.shape[1]] = products + by_distance[block].gather(1, index[block])
        found: Floats = logits.double().cpu().numpy()
        return found, heights

    def attach(self, rows: Ints, closes: Ints) -> Ints:
        """Add the positions of tokens that attach by closing ``closes`` (n,) constituents; returns their rows."""
        new = self.items(rows)
        before, tokens = new[:, BEFORE], new[:, TOKEN].copy()
        old = self.items(before)
        place = old[:, PLACE] + 1
        new[:, TOKEN], new[:, CLOSED], new[:, PLACE], new[:, FIRST] = NONE, closes, place, place
        new[:, HEIGHT] = old[:, HEIGHT] + 1 - closes
        new[:, BELOW] = np.where(old[:, HEIGHT] > 0, before, NONE)
        path, tape = self._paths.get(old[:, PATH], int(place.max()) + 1)
        begun = np.zeros_like(path)  # constituents that are built now, where they begin
        items = self._items.all
        for count in range(int(closes.max(initial=0))):
            closing = np.flatnonzero(closes > count)
            below = new[closing, BELOW]
            new[closing, FIRST], new[closing, BELOW] = items[below, FIRST], items[below, BELOW]
            begun[closing, items[below, FIRST]] += 1
        path[np.arange(len(rows)), place] = len(self._items) + np.arange(len(rows))
        tape = np.where(path == NONE, 0, tape + np.cumsum(begun, 1)).clip(0, self._weights.config.max_depth)
        vectors = self._weights.tokens.index_select(0, to_device(tokens, self._weights.tokens.device))
        return self._read(new, vectors, path, tape)

    def _read(self, items: Ints, vectors: Tensor, path: Ints, tape: Ints) -> Ints:
        """Add positions with these integers and vectors (n, D); returns their rows.

        ``path`` (n, S) are the rows that they see, themselves included, ``tape`` (n, S) the depths of these.
        """
        config, device = self._weights.config, vectors.device
        items[:, POSITION] = len(self._outputs) + np.arange(len(items))
        items[:, PATH] = self._paths.append(path, tape)
        rows = self._items.append(items)
        units = padded_rows(vectors)
        seen = with_fillers(np.where(path == NONE, NONE, self._items.all[path, POSITION]), len(units))
        distance = (items[:, PLACE, None] - np.arange(path.shape[1])).clip(0, config.max_distance)
        queries = Queries(
            units=units,
            seen=to_device(np.maximum(seen, 0), device),
            hidden=to_device((seen == NONE)[:, None], device),
            relative=tuple(_lengthened(one, len(units), device) for one in (distance, tape)),
        )
        for layer, keys_values in zip(self._weights.layers, self._layers, strict=True):
            units = read_layer(layer, units, queries, keys_values, len(items))
        outputs, head = self._weights.norm(units), self._weights.attachment
        depth = to_device(np.minimum(items[:, CLOSED], config.max_depth), device)
        self._keys.append(head.key(outputs)[: len(items)] + head.depths.index_select(0, depth))
        self._outputs.append(outputs[: len(items)])
        return rows

    def keep(self, tops: Ints) -> Ints:
        """Drop what analyses with these last rows do not need; returns the new number of every old row.

        Unused paths are dropped in every call, unused rows only when there may be as many of them as of others.
        """
        items = self._items.all
        alive = np.unique(np.append(np.where(items[tops, TOKEN] == NONE, tops, items[tops, BEFORE]), 0))
        self._paths.keep(items[alive, PATH])
        items[:, PATH] = NONE
        items[alive, PATH] = np.arange(len(alive))
        if len(items) <= self._most:
            return np.arange(len(items))
        marked: Bools = np.zeros(len(items), np.bool_)
        marked[tops] = True
        marked[self._paths.in_use()] = True
        new = renumbering(marked)
        positions = items[marked, POSITION]
        self._items.keep(marked)
        items = self._items.all
        for column in (BEFORE, BELOW):
            items[:, column] = renumbered(new, items[:, column])
        self._paths.renumber(new)
        read = positions != NONE
        items[read, POSITION] = np.arange(read.sum())
        for matrix in (self._outputs, self._keys, *self._layers):
            matrix.keep(positions[read])
        self._most = 2 * len(items) + _ROOM
        return new

    def copy(self) -> TapeRows:
        """An independent copy."""
        new = copy.copy(self)
        new._items, new._paths = self._items.copy(), copy.copy(self._paths)
        new._outputs, new._keys = self._outputs.copy(), self._keys.copy()
        new._layers = [matrix.copy() for matrix in self._layers]
        return new


def _lengthened(values: Ints, num_queries: int, device: torch.device) -> Tensor:
    """Integers of queries (n, S), followed by zeros for queries that only fill the number up: (m, 1, S)."""
    out = np.zeros((num_queries, 1, values.shape[1]), np.int64)
    out[: len(values), 0] = values
    return to_device(out, device)


class Paths:
    """What positions see: for each path, the rows of all positions so far, by place, and their depths on the tape.

    The arrays (paths, S) are never written to, so a shallow copy is independent.
    """

    def __init__(self) -> None:
        """Start without paths."""
        self._rows = lists_of_seen(0, 0)
        self._depths = np.zeros_like(self._rows)

    def get(self, index: Ints, length: int) -> tuple[Ints, Ints]:
        """Copies of the paths ``index`` (n,) with room for ``length`` rows: rows or NONE (n, S), and their depths."""
        rows = lists_of_seen(len(index), length)
        depths, common = np.zeros_like(rows), min(rows.shape[1], self._rows.shape[1])
        rows[:, :common], depths[:, :common] = self._rows[index, :common], self._depths[index, :common]
        return rows, depths

    def append(self, rows: Ints, depths: Ints) -> Ints:
        """Add paths with these rows and depths (n, S); returns their numbers."""
        number = len(self._rows)
        width = max(rows.shape[1], self._rows.shape[1])
        old = self.get(np.arange(number), width)
        more = width - rows.shape[1]
        new = np.pad(rows, ((0, 0), (0, more)), constant_values=NONE), np.pad(depths, ((0, 0), (0, more)))
        self._rows, self._depths = (np.concatenate(pair) for pair in zip(old, new, strict=True))
        return np.arange(number, len(self._rows))

    def keep(self, index: Ints) -> None:
        """Keep the paths at ``index``, in that order."""
        rows, depths = self._rows[index], self._depths[index]
        width = lists_of_seen(0, int((rows != NONE).sum(1).max(initial=0))).shape[1]
        self._rows, self._depths = rows[:, :width], depths[:, :width]

    def in_use(self) -> Ints:
        """All rows that are on any path."""
        return np.unique(self._rows[self._rows != NONE])

    def renumber(self, new: Ints) -> None:
        """Replace every row by its new number."""
        self._rows = np.where(self._rows == NONE, NONE, new[self._rows])


@dataclass(frozen=True)
class AttachmentWeights:
    """The parameters of ``AttachmentHead``, for g that is scaled before it meets vectors and tables."""

    scale: float
    query_in: Product
    query_out: Product
    own_in: Product
    own_out: Product
    key: Product
    depths: Tensor
    distances: Product

    def queries(self, states: Tensor, vectors: Tensor) -> tuple[Tensor, Tensor]:
        """g times the scale (n, D), and the logits of attaching to itself without r[0] (n,), for padded rows (n, D)."""
        queries = self.query_out(functional.gelu(self.query_in(torch.cat([states, vectors], 1))))
        own = self.own_out(functional.gelu(self.own_in(torch.cat([queries, vectors], 1))))
        scaled = queries * self.scale
        return scaled, (scaled * own).sum(1)


@dataclass(frozen=True)
class SearchWeights:
    """The parameters of a model as the search uses them, for batch-invariant products."""

    config: PushdownConfig
    ends_word: Bools  # (V,)
    tokens: Tensor  # (V, D)
    start: Tensor  # (1, D)
    layers: tuple[BlockWeights, ...]
    norm: nn.LayerNorm
    attachment: AttachmentWeights
    finish: Product
    words: Affine  # (D) -> V logits, in tiny models followed by impossible tokens
