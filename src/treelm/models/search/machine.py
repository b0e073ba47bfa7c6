"""The interface of a generative parser to the search: a machine that runs analyses, and a head that scores words.

A derivation is a sequence of actions: SHIFT, which is 0, others and, where closing the root does not end the sentence,
FINISH, the last one. What the others do, and how an analysis is represented, is up to the machine; actions of machines
with nonterminals are numbered as in ``treelm.trees.transitions``.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Protocol, Self

import numpy as np
import torch
from torch import Tensor

from treelm.models.search.analyses import Analyses, Candidates, Histories, Layout
from treelm.models.search.rows import Bools, Floats, Ints
from treelm.trees.transitions import FIRST_NT, REDUCE, SHIFT


class MachineRows(Protocol):
    """What a machine knows of its analyses, by row."""

    def __len__(self) -> int:
        """Rows that are held now."""

    def outputs(self, rows: Ints) -> Tensor:
        """Vectors that the head reads, of these rows, in a padded number."""

    def keep(self, tops: Ints) -> Ints:
        """Drop what analyses with these rows do not need; returns the new number of every old row."""

    def copy(self) -> Self:
        """An independent copy."""


class Machine(ABC):
    """A machine that runs the analyses of one search, many at once. Only ``collect`` renumbers its rows.

    An analysis is a row of the machine (``top``), which stays as it is while successors are made of it.
    """

    rows: MachineRows
    """The constructor of a system sets it."""

    def __init__(
        self, num_actions: int, *, ends_by_closing: bool, num_closed: Ints | None = None, num_groups: int = 1
    ) -> None:
        """Begin without histories. Unless ``num_closed`` says how many constituents each action closes, REDUCE does."""
        self.num_actions = num_actions
        """A, valid or not."""
        self.ends_by_closing = ends_by_closing
        """Whether REDUCE of the root ends a sentence, and only REDUCEs lead there (top-down); else FINISH does."""
        self.num_closed = (np.arange(num_actions) == REDUCE).astype(np.int64) if num_closed is None else num_closed
        """Constituents that each action closes: (A,)."""
        self.num_groups = num_groups
        """G, of groups of analyses that do not compete for places in a beam; see ``groups``."""
        self.histories = Histories()
        """The actions of all analyses; ``start``, ``apply`` and ``shift`` append to them."""

    def __len__(self) -> int:
        """Rows that are held now."""
        return len(self.rows)

    @abstractmethod
    def start(self, num_sentences: int) -> Analyses:
        """One analysis a sentence, before the first action."""

    @abstractmethod
    def apply(self, analyses: Analyses, sources: Ints, actions: Ints, score: Floats) -> Analyses:
        """The successors of ``analyses[sources]`` with these scores, by actions but SHIFT and those that end."""

    @abstractmethod
    def shift(self, analyses: Candidates, tokens: Ints) -> Analyses:
        """The successors by SHIFT of one token each; scores already count it."""

    @property
    def attention(self) -> Floats:
        """Normalised attention entropies of the tokens that the last ``shift`` read: (n, H, 2). Here: of no heads."""
        return np.zeros((0, 0, 2))

    def outputs(self, tops: Ints) -> Tensor:
        """Vectors that the head reads, for analyses with these rows: (n, E)."""
        return self.rows.outputs(tops)[: len(tops)]

    def layer_states(self, tops: Ints) -> list[Tensor]:
        """Hidden states (n, H) of each layer, the lowest first, for analyses with these rows. Here: the outputs."""
        return [self.outputs(tops)]

    @abstractmethod
    def num_open(self, tops: Ints) -> Ints:
        """Open nonterminals of analyses with these rows, or whatever waits to be part of a constituent: (n,)."""

    def collect(self, tops: Sequence[Ints], histories: Sequence[Ints]) -> tuple[Ints, Ints]:
        """Drop what these rows and histories do not need; returns new numbers of old rows and of old histories."""
        return self.rows.keep(np.concatenate(tops)), self.histories.keep(np.concatenate(histories))

    def groups(self, tops: Ints) -> Ints:
        """The group of each analysis with these rows, 0 to G - 1: (n,). In a beam, every group has all of its room.

        No action but SHIFT leads to a lower one.
        """
        return np.zeros(len(tops), np.int64)

    def towards_end(self, analyses: Analyses) -> Bools:
        """Mark the actions after which the sentence may end without another SHIFT, valid or not: (n, A).

        Of machines with nonterminals these are all but SHIFT, and NT where closing ends.
        """
        mask = np.ones(analyses.log_probs.shape, np.bool_)
        mask[:, SHIFT] = False
        if self.ends_by_closing:
            mask[:, FIRST_NT:] = False
        return mask

    def copy(self) -> Self:
        """An independent copy; a system copies also what it holds besides."""
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
        """The device that it computes on."""

    def logits(self, outputs: Tensor, tokens: Ints) -> Floats:
        """The logit of one token for each output: (n,)."""

    def log_normalisers(self, outputs: Tensor) -> Floats:
        """log of the sum over all tokens of exp(logit): (n,)."""

    def log_normaliser_bounds(self, outputs: Tensor, tokens: Ints, logits: Floats, *, rough: bool) -> Floats:
        """A lower bound of each normaliser, given a token and its logit: (n,). A ``rough`` one is made faster."""

    def log_probs(self, outputs: Tensor) -> Tensor:
        """log p of every token: float64 (n, V)."""


BINARY_GROUPS = 4
"""Groups of machines that open the constituents of binary trees before their children."""


def groups_of_binary_trees(needed: Ints) -> Ints:
    """Groups by the least number of words that have still to come: none, one, two, more; (n,).

    Where none has, the sentence can but end, and where more than one has, it cannot end soon. A beam that holds some of
    each has an analysis for whatever comes next, as long as ``max_open`` lets it open constituents.
    """
    return needed.clip(0, BINARY_GROUPS - 1)


def by_groups(machine: Machine, analyses: Candidates, num_sentences: int) -> tuple[Ints, Layout]:
    """The order of analyses by sentence and group, and their places in it: a row for each group of each sentence."""
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
