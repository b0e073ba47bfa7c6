"""Reading: the sequential part, which decides and, where it must, computes what the next decision needs.

Nothing here is differentiated; ``graph`` computes the same again by levels for the decisions that were made.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from treelm.models.layers.devices import to_device
from treelm.models.shift_reduce.stacks import BoolArray, IntArray, Pushes, Stacks

if TYPE_CHECKING:
    from treelm.models.shift_reduce.network import ShiftReduce

Choose = Callable[[Tensor, BoolArray], BoolArray]
"""Logits of REDUCE (n,) and what the oracle would do (n,) -> whether to REDUCE."""


def greedy(logits: Tensor, best: BoolArray) -> BoolArray:
    """The more probable action."""
    chosen: BoolArray = (logits > 0).cpu().numpy()
    return chosen


def sample(logits: Tensor, best: BoolArray) -> BoolArray:
    """An action drawn from the distribution, with torch's global generator."""
    chosen: BoolArray = torch.bernoulli(logits.sigmoid()).bool().cpu().numpy()
    return chosen


@dataclass(kw_only=True)
class Bank:
    """The vectors of all nodes. Node 0, below every stack, is zero."""

    items: Tensor  # (nodes or more, D)
    hidden: Tensor  # (layers, nodes or more, D)
    cell: Tensor  # (layers, nodes or more, D)

    @classmethod
    def empty(cls, like: Tensor, num_layers: int, capacity: int = 64) -> Bank:
        """Room for some nodes of the size of ``like`` (.., D)."""
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

    def __init__(self, network: ShiftReduce, stacks: Stacks, bank: Bank | None) -> None:
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
        for layer, weights in enumerate(network.stack_layers()):
            state = weights(items, bank.hidden[layer, below], bank.cell[layer, below])
            bank.hidden[layer, new], bank.cell[layer, new] = state
            items = bank.hidden[layer, new]

    def _tensor(self, values: NDArray[np.int64]) -> Tensor:
        return to_device(values, self._network.embedding.device)
