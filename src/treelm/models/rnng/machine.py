"""The machine of an RNNG: it applies actions to many stacks at once, and scores the next actions.

The columns of an item, such as ``at.BELOW``, are those of ``arena.py``. A = number of actions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Self

import numpy as np
from torch import Tensor

from treelm.models.rnng import arena as at
from treelm.models.rnng.arena import SearchWeights, Stacks
from treelm.models.rnng.composition import NoComposition
from treelm.models.rnng.constituents import ConstituentTable
from treelm.models.search.analyses import Analyses, AnalysisTable
from treelm.models.search.machine import BINARY_GROUPS, Machine, groups_of_binary_trees
from treelm.models.search.rows import Bools, Floats, Ints
from treelm.models.search.validity import (
    CONSTITUENT,
    OPEN,
    WORD,
    Configuration,
    log_softmax,
    valid_actions,
)
from treelm.trees.transitions import FIRST_NT, REDUCE, SHIFT


class StackMachine(Machine):
    """The stacks, constituents and histories of one search."""

    rows: Stacks

    def __init__(self, weights: SearchWeights, *, starts: Tensor | None = None) -> None:
        """Start with the initial item alone. ``starts``: see ``Stacks``."""
        config, num_groups = weights.config, BINARY_GROUPS if weights.config.is_binary else 1
        self._in_order = config.order == "in-order"
        super().__init__(weights.num_actions, ends_by_closing=not self._in_order, num_groups=num_groups)
        self.weights = weights
        self.constituents = ConstituentTable(weights)
        self.rows = Stacks(weights, self.constituents.nothing_open, starts)
        self._composes = not isinstance(weights.composition, NoComposition)

    def valid(self, sentence: Ints, items: Ints) -> Bools:
        """Which actions are valid (n, A), from the sentences of analyses (n,) and the items on top (n, NUM_COLUMNS)."""
        configuration = Configuration(
            num_open=items[:, at.NUM_OPEN],
            num_consecutive=items[:, at.NUM_CONSECUTIVE],
            top=items[:, at.TOP],
            in_word=items[:, at.IN_WORD] == 1,
            only_child=items[:, at.UNDER] == items[:, at.OPENED],
        )
        return valid_actions(self.weights.config, configuration, self.weights.num_labels)

    def start(self, num_sentences: int) -> Analyses:
        """One analysis for each sentence, before its first action."""
        top, zero = self.rows.initial(num_sentences), np.zeros(num_sentences)
        new = AnalysisTable(np.arange(num_sentences), zero, zero, top, np.full(num_sentences, -1))
        return self._scored(new, self.rows.items(top), self.rows.top_states(top))

    def shift(self, analyses: AnalysisTable, tokens: Ints) -> Analyses:
        """SHIFT one token on each of these stacks; the scores already include it."""
        top = analyses.top
        items = self.rows.items(top)
        new = items.copy()
        new[:, at.BELOW] = top
        new[:, at.UNDER] = np.where(items[:, at.IN_WORD] == 1, items[:, at.UNDER], top)
        new[:, at.LABEL], new[:, at.NUM_CONSECUTIVE], new[:, at.TOP] = -1, 0, WORD
        new[:, at.IN_WORD] = ~self.weights.ends_word[tokens]
        new[:, at.NUM_NEEDED] -= items[:, at.IN_WORD] == 0
        new[:, at.VECTOR] = self.constituents.of_tokens(tokens)
        self._add_child(new)
        new[:, at.DEPTH] += 1
        new[:, at.NUM_ACTIONS] = items[:, at.NUM_ACTIONS] + 1
        history = self.histories.append(analyses.history, np.full(len(top), SHIFT))
        return self._pushed(AnalysisTable(analyses.sentence, analyses.score, analyses.deficit, top, history), new)

    def apply(self, analyses: Analyses, sources: Ints, actions: Ints, score: Floats) -> Analyses:
        """The successors of ``analyses[sources]`` by actions other than SHIFT, with their scores."""
        below = analyses.top[sources]
        items = self.rows.items(below)
        history = self.histories.append(analyses.history[sources], actions)
        closes = np.flatnonzero(actions == REDUCE)
        opens = np.flatnonzero(actions != REDUCE)
        new = np.empty_like(items)
        if len(opens):
            new[opens] = self._opened(below[opens], items[opens], actions[opens] - FIRST_NT, len(self.rows) + opens)
        if len(closes):
            new[closes] = self._closed(below[closes], items[closes], analyses.outputs, sources[closes])
            below = new[:, at.BELOW]
        sentence, deficit = analyses.sentence[sources], analyses.deficit[sources]
        return self._pushed(AnalysisTable(sentence, score, deficit, below, history), new)

    def _opened(self, below: Ints, items: Ints, labels: Ints, own_rows: Ints) -> Ints:
        """The items that NT(labels) pushes as rows ``own_rows`` on rows ``below``, where ``items`` are on top."""
        new = items.copy()
        new[:, at.BELOW] = below
        new[:, at.OPENED], new[:, at.LABEL], new[:, at.VECTOR] = own_rows, labels, labels
        new[:, at.NUM_OPEN] += 1
        new[:, at.NUM_CONSECUTIVE] += 1
        new[:, at.NUM_NEEDED] += 1
        new[:, at.TOP], new[:, at.IN_WORD] = OPEN, 0
        if self._in_order:  # UNDER stays that of the left corner
            new[:, at.PARTIAL] = self._with_corner(labels, below, items[:, at.UNDER])
        else:
            new[:, at.UNDER], new[:, at.PARTIAL] = below, labels
        new[:, at.DEPTH] += 1
        new[:, at.NUM_ACTIONS] = items[:, at.NUM_ACTIONS] + 1
        return new

    def _with_corner(self, labels: Ints, corners: Ints, under: Ints) -> Ints:
        """The partials of new nonterminals with their left corner as a child: a constituent, or the pieces of a word.

        A corner consists of the rows from ``corners`` down to ``under``, exclusive.
        """
        pieces, inside = list[Ints](), np.ones(len(labels), np.bool_)
        while self._composes and inside.any():
            pieces.append(np.where(inside, self.rows.column(corners, at.VECTOR), -1))
            corners = self.rows.column(corners, at.BELOW)
            inside &= corners != under
        partials = labels.copy()
        for vectors in reversed(pieces):
            present = vectors >= 0
            partials[present] = self.constituents.extend(partials[present], vectors[present])
        return partials

    def _closed(self, top: Ints, items: Ints, outputs: Tensor, sources: Ints) -> Ints:
        """The items that REDUCE pushes, where ``items`` in rows ``top`` are on top."""
        under = self.rows.column(items[:, at.OPENED], at.UNDER)
        new = self.rows.items(under)
        new[:, at.BELOW] = under if self._composes else top
        new[:, at.UNDER], new[:, at.LABEL] = under, -1
        new[:, at.NUM_CONSECUTIVE] = items[:, at.NUM_CONSECUTIVE] if self._in_order else 0
        new[:, at.NUM_NEEDED] = items[:, at.NUM_NEEDED]
        new[:, at.TOP], new[:, at.IN_WORD] = CONSTITUENT, 0
        new[:, at.VECTOR] = self.constituents.compose(items[:, at.PARTIAL], outputs, sources)
        self._add_child(new)
        new[:, at.DEPTH] += 1
        new[:, at.NUM_ACTIONS] = items[:, at.NUM_ACTIONS] + 1
        return new

    def _add_child(self, items: Ints) -> None:
        """Add each new item to the partial of which it is a child; until now PARTIAL is that without it."""
        child = np.flatnonzero(items[:, at.NUM_OPEN] > 0)
        if len(child):
            items[child, at.PARTIAL] = self.constituents.extend(items[child, at.PARTIAL], items[child, at.VECTOR])

    def _pushed(self, below: AnalysisTable, items: Ints) -> Analyses:
        """Push an item on each of the stacks of ``below``."""
        top, states = self.rows.push(below.top, items, self.constituents.vectors)
        return self._scored(replace(below, top=top), items, states)

    def _scored(self, new: AnalysisTable, items: Ints, states: Tensor) -> Analyses:
        outputs = self.rows.output(states)
        logits = self.weights.actions(outputs)[: len(new), : self.weights.num_actions].double().cpu().numpy()
        log_probs = log_softmax(logits, self.valid(new.sentence, items))
        return Analyses(**vars(new), outputs=outputs[: len(new)], log_probs=log_probs)

    def layer_states(self, tops: Ints) -> list[Tensor]:
        """The hidden states (n, H) of every layer of the stack LSTM at these tops."""
        return self.rows.layer_states(tops)

    def num_open(self, tops: Ints) -> Ints:
        """Open nonterminals of stacks with these tops: (n,)."""
        return self.rows.column(tops, at.NUM_OPEN)

    def groups(self, tops: Ints) -> Ints:
        """The group of stacks with these tops: (n,)."""
        if self.num_groups == 1:
            return super().groups(tops)
        return groups_of_binary_trees(self.rows.column(tops, at.NUM_NEEDED) + self.rows.column(tops, at.IN_WORD))

    def collect(self, tops: Sequence[Ints], histories: Sequence[Ints]) -> tuple[Ints, Ints]:
        """Drop what analyses with these tops and histories do not need, vectors and partials included."""
        new = super().collect(tops, histories)
        self.rows.renumber(*self.constituents.keep(*self.rows.in_use))
        return new

    def copy(self) -> Self:
        """An independent copy."""
        new = super().copy()
        new.constituents = self.constituents.copy()
        return new
