"""The sequential part: stacks of many sentences, and a reader that decides with one word of look-ahead.

Every action pushes a node: SHIFT the next position, REDUCE the constituent of the two items on top, which it pops.
Node 0 stands below every stack. Nothing here is differentiated: only what the next decision needs is computed, and
``graph`` computes the same again by levels for the decisions that were made.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from treelm.corpora.encoding import word_of_token
from treelm.corpora.vocabulary import Vocabulary
from treelm.models.layers.binary_structure import ANY_DEPTH, decoded_spans, word_tree
from treelm.models.layers.devices import to_device
from treelm.models.layers.lstm import LSTMWeights
from treelm.models.layers.precision import linear
from treelm.models.states import TextState
from treelm.trees.tree import Tree

IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]
Choose = Callable[[Tensor, BoolArray], BoolArray]
"""Logits of REDUCE (n,) and what the oracle would do (n,) -> whether to REDUCE."""


def greedy(logits: Tensor, best: BoolArray) -> BoolArray:
    """The more probable action."""
    chosen: BoolArray = (logits > 0).cpu().numpy()
    return chosen


def sample(logits: Tensor, best: BoolArray) -> BoolArray:
    """An action drawn from the distribution, with torch's global generator."""
    # Of weights that have gone wrong any action will do: the loss says what is the matter.
    chosen: BoolArray = torch.bernoulli(logits.sigmoid().nan_to_num(0.0)).bool().cpu().numpy()
    return chosen


@dataclass(frozen=True, kw_only=True)
class StackLSTM:
    """The layers that the stack is computed by: items composed, an LSTM over the items, and the choice of actions.

    Popping goes back to the state below (stack LSTM, Dyer et al. 2015).
    """

    composition: nn.Linear
    layers: Sequence[LSTMWeights]  # the lowest first
    action_hidden: nn.Linear
    action_score: nn.Linear

    def composed(self, left: Tensor, right: Tensor) -> Tensor:
        """The vector of constituents: tanh(W [left; right] + b), (n, D) each."""
        return linear(torch.cat([left, right], 1), self.composition.weight, self.composition.bias).tanh()

    def action_logits(self, states: Tensor, look_ahead: Tensor) -> Tensor:
        """Log odds of REDUCE: w . ReLU(W [state; look-ahead] + b) + c, from (n, D) and (n, D) to (n,)."""
        pair = torch.cat([states, look_ahead], 1)
        hidden = linear(pair, self.action_hidden.weight, self.action_hidden.bias).relu()
        return linear(hidden, self.action_score.weight, self.action_score.bias)[:, 0]


@dataclass(frozen=True, kw_only=True, slots=True)
class Pushes:
    """Nodes that some stacks pushed, one each, in the order of their numbers."""

    first: int  # the first node's number
    below: IntArray  # (n,) the node that each one stands on
    left: IntArray  # (n,) what a constituent consists of; 0 for a position
    right: IntArray
    heights: IntArray  # (n,) of the stack with the new node


class ParserStacks:
    """The stacks of n sentences, all empty at first. Positions count from 0, the sentence boundary ``<s>``."""

    def __init__(self, num_rows: int) -> None:
        """Begin with empty stacks."""
        self.heights = np.zeros(num_rows, np.int64)
        self.num_read = np.zeros(num_rows, np.int64)  # positions
        self.num_nodes = 1
        self.shifted_at: list[tuple[int, ...]] = [()] * num_rows  # heights at which positions were shifted
        self._nodes = np.zeros((num_rows, 8), np.int64)  # by place, bottom first
        self._starts = np.zeros((num_rows, 8), np.int64)  # first position of the item at each place

    def copy(self) -> ParserStacks:
        """Stacks that can change by themselves."""
        other = ParserStacks(0)
        other.heights, other.num_read, other.num_nodes = self.heights.copy(), self.num_read.copy(), self.num_nodes
        other.shifted_at = list(self.shifted_at)
        other._nodes, other._starts = self._nodes.copy(), self._starts.copy()
        return other

    def top(self, rows: IntArray) -> IntArray:
        """The nodes on top of these stacks, which are not empty."""
        return self._nodes[rows, self.heights[rows] - 1]

    def best_action(self, rows: IntArray, siblings: IntArray) -> BoolArray:
        """The dynamic oracle: whether to REDUCE before shifting positions whose first siblings (n,) are known.

        The position must come to stand on the item that holds its first sibling, so what started later is in the way.
        """
        later: BoolArray = self._starts[rows, self.heights[rows] - 1] > siblings
        return later

    def step(self, rows: IntArray, reduces: BoolArray) -> Pushes:
        """One action in each of these stacks: REDUCE where ``reduces``, else SHIFT."""
        heights = self.heights[rows]
        base = np.where(reduces, heights - 2, heights)
        self._make_room(int(base.max()) + 1)
        left = np.where(reduces, self._nodes[rows, heights - 2], 0)
        right = np.where(reduces, self._nodes[rows, heights - 1], 0)
        below = np.where(base > 0, self._nodes[rows, base - 1], 0)
        for row in rows[~reduces].tolist():
            self.shifted_at[row] = (*self.shifted_at[row], int(self.heights[row]))
        self._starts[rows, base] = np.where(reduces, self._starts[rows, heights - 2], self.num_read[rows])
        first = self.num_nodes
        self._nodes[rows, base] = np.arange(first, first + len(rows))
        self.num_nodes += len(rows)
        self.heights[rows] = base + 1
        self.num_read[rows] += ~reduces
        return Pushes(first=first, below=below, left=left, right=right, heights=base + 1)

    def _make_room(self, height: int) -> None:
        while self._nodes.shape[1] < height:
            self._nodes, self._starts = (np.hstack([a, np.zeros_like(a)]) for a in (self._nodes, self._starts))


@dataclass(kw_only=True)
class Bank:
    """The vectors of all nodes. Node 0, below every stack, is zero."""

    items: Tensor  # (nodes or more, D)
    hidden: Tensor  # (layers, nodes or more, D)
    cell: Tensor  # (layers, nodes or more, D)

    @classmethod
    def empty(cls, like: Tensor, num_layers: int, capacity: int = 64) -> Bank:
        """Memory for some nodes of the size of ``like`` (.., D)."""
        zeros = like.new_zeros(num_layers, capacity, like.shape[-1])
        return cls(items=zeros[0].clone(), hidden=zeros, cell=zeros.clone())

    def copy(self) -> Bank:
        """A bank that can change by itself."""
        return Bank(items=self.items.clone(), hidden=self.hidden.clone(), cell=self.cell.clone())

    def make_room(self, num_nodes: int) -> None:
        """Grow to this many nodes at least, by doubling."""
        while len(self.items) < num_nodes:
            self.items = torch.cat([self.items, torch.zeros_like(self.items)])
            self.hidden = torch.cat([self.hidden, torch.zeros_like(self.hidden)], 1)
            self.cell = torch.cat([self.cell, torch.zeros_like(self.cell)], 1)


@dataclass(kw_only=True)
class Decisions:
    """Actions where there was a choice, one array a step each."""

    nodes: list[IntArray] = field(default_factory=list)  # on top of the stack
    inputs: list[IntArray] = field(default_factory=list)  # the look-ahead word, among the inputs
    logits: list[Tensor] = field(default_factory=list)  # of REDUCE; none where nothing was computed
    best: list[BoolArray] = field(default_factory=list)  # whether the oracle would REDUCE


class Reader:
    """Sentences that are read side by side, each at its own pace: one action a step."""

    def __init__(self, network: StackLSTM, stacks: ParserStacks, bank: Bank | None) -> None:
        """Go on with these stacks, which change. Without a bank nothing is computed: the oracle acts."""
        self.stacks, self.bank = stacks, bank
        self.pushes: list[Pushes] = []
        self.pushed_inputs: list[IntArray] = []  # of every push: an input, or -1 for a constituent
        self.decisions = Decisions()
        self._network = network

    def read(
        self,
        inputs: Tensor,  # (m, D)
        offsets: IntArray,  # (n + 1,) sentence b reads inputs[offsets[b]:offsets[b + 1]]
        *,
        choose: Choose = greedy,
        siblings: IntArray | None = None,  # (m,) first siblings, for the oracle
        masks: Tensor | None = None,  # (n, D) dropout of the states that decide
    ) -> None:
        """Read until every sentence has shifted its last input."""
        at = offsets[:-1].copy()
        while len(rows := np.flatnonzero(at < offsets[1:])):
            reduces = np.zeros(len(rows), bool)
            is_free = self.stacks.heights[rows] >= 2
            if is_free.any():
                free = rows[is_free]
                best = np.zeros(len(free), bool)
                if siblings is not None:
                    best = self.stacks.best_action(free, siblings[at[free]])
                reduces[is_free] = self._decide(free, inputs, at[free], best, choose, masks)
            self._push(rows, reduces, inputs, at[rows])
            at[rows] += ~reduces

    def _decide(
        self,
        rows: IntArray,
        inputs: Tensor,
        at: IntArray,
        best: BoolArray,
        choose: Choose,
        masks: Tensor | None,
    ) -> BoolArray:
        tops = self.stacks.top(rows)
        self.decisions.nodes.append(tops)
        self.decisions.inputs.append(at)
        self.decisions.best.append(best)
        if self.bank is None:
            return best
        states = self.bank.hidden[-1].index_select(0, self._tensor(tops))
        if masks is not None:
            states = states * masks[self._tensor(rows)]
        logits = self._network.action_logits(states, inputs.index_select(0, self._tensor(at)))
        self.decisions.logits.append(logits)
        return choose(logits, best)

    def _push(self, rows: IntArray, reduces: BoolArray, inputs: Tensor, at: IntArray) -> None:
        pushes = self.stacks.step(rows, reduces)
        self.pushes.append(pushes)
        self.pushed_inputs.append(np.where(reduces, -1, at))
        if self.bank is not None:
            self.bank.make_room(self.stacks.num_nodes)
            self._compute(self.bank, pushes, reduces, inputs, at)

    def _compute(self, bank: Bank, pushes: Pushes, reduces: BoolArray, inputs: Tensor, at: IntArray) -> None:
        network = self._network
        new = slice(pushes.first, pushes.first + len(reduces))
        items = inputs.index_select(0, self._tensor(at))
        if reduces.any():
            pair = [bank.items[self._tensor(side[reduces])] for side in (pushes.left, pushes.right)]
            items[self._tensor(np.flatnonzero(reduces))] = network.composed(*pair)
        bank.items[new] = items
        below = self._tensor(pushes.below)
        for layer, weights in enumerate(network.layers):
            state = weights(items, bank.hidden[layer, below], bank.cell[layer, below])
            bank.hidden[layer, new], bank.cell[layer, new] = state
            items = bank.hidden[layer, new]

    def _tensor(self, values: NDArray[np.int64]) -> Tensor:
        return to_device(values, self._network.composition.weight.device)


@dataclass(frozen=True, kw_only=True)
class ParserState(TextState):
    """The stacks of n sentences after some words, as one state that is never changed."""

    stacks: ParserStacks
    bank: Bank

    def trees(self, vocabulary: Vocabulary) -> list[Tree]:
        """The trees of the actions so far."""
        self.check_begun()
        return [
            partial_tree(words, self.stacks.shifted_at[row], word_of_token(np.array(tokens), vocabulary.ends_word))
            for row, (words, tokens) in enumerate(zip(self.words, self.tokens, strict=True))
        ]


def partial_tree(words: Sequence[str], shifted_at: Sequence[int], word_numbers: IntArray) -> Tree:
    """The tree of the heights at which the boundary and all tokens were shifted; what is open is closed."""
    decisions = [ANY_DEPTH - height for height in shifted_at]
    return word_tree(words, decoded_spans(decisions, ANY_DEPTH), word_numbers)
