"""The interface of a generative parser to the search: a machine that runs analyses, and a head that scores words.

A derivation is a sequence of actions. SHIFT has the number 0; where closing the root does not end the sentence, FINISH,
the last number, does. What other actions do, and how an analysis is represented, is up to the machine. Machines with
nonterminals number their actions as in ``treelm.trees.transitions``.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Protocol, Self

import numpy as np
import torch
from torch import Tensor

from treelm.models.search.analyses import Analyses, AnalysisTable, Histories, Layout
from treelm.models.search.rows import Bools, Floats, Ints
from treelm.trees.transitions import FIRST_NT, REDUCE, SHIFT


class MachineRows(Protocol):
    """The table in which a machine stores its analyses: one row for every item that was ever pushed and is in use."""

    def __len__(self) -> int:
        """Number of rows."""

    def outputs(self, rows: Ints) -> Tensor:
        """The vectors from which heads predict what follows these rows (n,): (m, E), padded to a round number m."""

    def keep(self, tops: Ints) -> Ints:
        """Drop the rows that analyses with these tops do not need; returns the new number of every old row."""

    def copy(self) -> Self:
        """An independent copy."""


class Machine(ABC):
    """A machine that runs the analyses of one search, many at once.

    An analysis is the number of a row (its ``top``). Rows never change: an action appends the rows of the successors.
    Only ``collect`` drops rows, and renumbers those that are left.
    """

    rows: MachineRows
    """Set by the constructor of each system."""

    def __init__(
        self, num_actions: int, *, ends_by_closing: bool, num_closed: Ints | None = None, num_groups: int = 1
    ) -> None:
        """Start without histories. ``num_closed`` is (A,); by default REDUCE closes one constituent, others none."""
        self.num_actions = num_actions
        """Number of actions A, valid or not."""
        self.ends_by_closing = ends_by_closing
        """Whether REDUCE of the root ends a sentence, and only REDUCEs lead there (top-down); else FINISH does."""
        self.num_closed = (np.arange(num_actions) == REDUCE).astype(np.int64) if num_closed is None else num_closed
        """Constituents that each action closes: (A,)."""
        self.num_groups = num_groups
        """Number G of groups of analyses that do not compete for places in a beam; see ``groups``."""
        self.histories = Histories()
        """The actions of all analyses; ``start``, ``apply`` and ``shift`` append to them."""

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.rows)

    @abstractmethod
    def start(self, num_sentences: int) -> Analyses:
        """One analysis for each sentence, before its first action."""

    @abstractmethod
    def apply(self, analyses: Analyses, sources: Ints, actions: Ints, score: Floats) -> Analyses:
        """The successors of ``analyses[sources]`` by these actions (n,), with these scores (n,).

        No action is SHIFT, and none ends the sentence.
        """

    @abstractmethod
    def shift(self, analyses: AnalysisTable, tokens: Ints) -> Analyses:
        """The successors by SHIFT of one token each (n,); the scores of ``analyses`` already include the tokens."""

    @property
    def attention(self) -> Floats:
        """Normalised attention entropies of the tokens that the last ``shift`` read: (n, H, 2); here H is 0."""
        return np.zeros((0, 0, 2))

    def outputs(self, tops: Ints) -> Tensor:
        """The vectors from which heads predict what follows analyses with these tops: (n, E)."""
        return self.rows.outputs(tops)[: len(tops)]

    def layer_states(self, tops: Ints) -> list[Tensor]:
        """Hidden states (n, H) of each layer, the lowest first, of analyses with these tops; here the outputs alone."""
        return [self.outputs(tops)]

    @abstractmethod
    def num_open(self, tops: Ints) -> Ints:
        """Open nonterminals of analyses with these tops, or whatever else waits to be part of a constituent: (n,)."""

    def collect(self, tops: Sequence[Ints], histories: Sequence[Ints]) -> tuple[Ints, Ints]:
        """Drop what analyses with these tops and histories do not need.

        Returns the new number of every old row, and of every old history.
        """
        return self.rows.keep(np.concatenate(tops)), self.histories.keep(np.concatenate(histories))

    def groups(self, tops: Ints) -> Ints:
        """The group of analyses with these tops, 0 to G - 1: (n,). A beam keeps its number of analyses of each group.

        No action but SHIFT may lead to a lower group.
        """
        return np.zeros(len(tops), np.int64)

    def towards_end(self, analyses: Analyses) -> Bools:
        """Mark the actions after which the sentence may end without another SHIFT, valid or not: (n, A).

        With nonterminals these are all actions but SHIFT and, where closing the root ends the sentence, NT.
        """
        mask = np.ones(analyses.log_probs.shape, np.bool_)
        mask[:, SHIFT] = False
        if self.ends_by_closing:
            mask[:, FIRST_NT:] = False
        return mask

    def copy(self) -> Self:
        """An independent copy. A system that keeps more than rows and histories extends this method."""
        new = copy.copy(self)
        new.rows, new.histories = self.rows.copy(), self.histories.copy()
        return new


class WordHead(Protocol):
    """log p(token | SHIFT) for outputs (n, E) of a machine; results are float64."""

    @property
    def vocabulary_size(self) -> int:
        """Number of tokens V."""

    @property
    def device(self) -> torch.device:
        """The device on which it computes."""

    def logits(self, outputs: Tensor, tokens: Ints) -> Floats:
        """The logit of one token for each output: (n,)."""

    def log_normalisers(self, outputs: Tensor) -> Floats:
        """log of the sum over all tokens of exp(logit): (n,)."""

    def log_normaliser_bounds(self, outputs: Tensor, tokens: Ints, logits: Floats, *, rough: bool) -> Floats:
        """A lower bound of each normaliser (n,), from one token and its logit; a ``rough`` one takes less time."""

    def log_probs(self, outputs: Tensor) -> Tensor:
        """log p of every token: float64 (n, V)."""


BINARY_GROUPS = 4
"""Number of groups of a machine that opens the constituents of binary trees before their children."""


def groups_of_binary_trees(needed: Ints) -> Ints:
    """The groups (n,) of analyses that ``needed`` (n,) further words at least: none, one, two, or more.

    An analysis that needs none can only end the sentence, and one that needs several cannot end it soon. A beam with
    analyses of every group has one for whatever comes next, as long as ``max_open`` lets it open constituents.
    """
    return needed.clip(0, BINARY_GROUPS - 1)


def by_groups(machine: Machine, analyses: AnalysisTable, num_sentences: int) -> tuple[Ints, Layout]:
    """The order of analyses by sentence and group, and their layout in that order: a row for each group."""
    row = analyses.sentence * machine.num_groups + machine.groups(analyses.top)
    order = np.argsort(row, kind="stable")
    return order, Layout(row[order], num_sentences * machine.num_groups)


def ending_actions(machine: Machine, analyses: Analyses) -> Bools:
    """Mark the actions that end the sentence, valid or not: (n, A)."""
    ends = np.zeros(analyses.log_probs.shape, np.bool_)
    if machine.ends_by_closing:
        ends[machine.num_open(analyses.top) == 1, REDUCE] = True
    else:
        ends[:, -1] = True
    return ends
