"""The machine of a bottom-up Transformer Grammar: it reads tokens and composes constituents on many stacks at once.

Actions of the search are SHIFT, REDUCE of each label, REACH of one item, of two and so on (not in binary trees, where
REDUCE takes two), and FINISH. REDUCE alone changes no stack: only a REACH may follow it.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from torch import Tensor

from treelm.models.layers.devices import to_device
from treelm.models.search.analyses import Analyses, Candidates, Histories, Scored
from treelm.models.search.machine import OneGroup, closing_actions
from treelm.models.search.rows import Bools, Floats, Ints, blocks, padded, renumbered
from treelm.models.search.validity import CONSTITUENT, WORD, log_softmax
from treelm.models.search.words import log_normalisers
from treelm.models.transformer_grammar import stacks as at
from treelm.models.transformer_grammar.bottom_up import FIRST_REDUCE, NONE, Stack, may_be_unary, valid_actions
from treelm.models.transformer_grammar.stacks import Composing, KeyValueStacks
from treelm.models.transformer_grammar.weights import SearchWeights
from treelm.trees.transitions import SHIFT

# What these columns hold here.
FIRST = at.OPENED  # the row where the top item begins: of a word in pieces, that of the first one
NUM_ITEMS = at.NUM_OPEN  # on the stack
NUM_UNARY = at.NUM_CONSECUTIVE  # constituents of one item that the top is, one around the other
LABEL = at.LABEL  # of a REDUCE that has still to reach; -1 for none

_ROWS = 64  # REDUCEs whose keys are held at a time


class BottomUpMachine(OneGroup):
    """Stacks and histories of one search. Only ``collect`` renumbers what exists."""

    def __init__(self, weights: SearchWeights, *, starts: Tensor | None = None) -> None:
        """Begin with START alone. ``starts``: see ``KeyValueStacks``."""
        self.weights = weights
        self.stacks = KeyValueStacks(weights, starts)
        self.histories = Histories()
        self._first_reach = FIRST_REDUCE + weights.num_labels

    @property
    def num_actions(self) -> int:
        """SHIFT, REDUCE of each label, REACH of each number of items, FINISH."""
        return self._first_reach + (self.weights.config.max_stack if self.weights.config.has_reach else 0) + 1

    @property
    def num_closed(self) -> Ints:
        """What makes a constituent closes one: REACH or, in binary trees, REDUCE."""
        num_closed = np.zeros(self.num_actions, np.int64)
        num_closed[self._first_reach if self.weights.config.has_reach else FIRST_REDUCE : -1] = 1
        return num_closed

    @property
    def ends_by_closing(self) -> bool:
        """Tell whether REDUCE ends a sentence: FINISH does."""
        return False

    def __len__(self) -> int:
        """Rows on all stacks."""
        return len(self.stacks)

    def start(self, num_sentences: int) -> Analyses:
        """One analysis a sentence, before the first action."""
        top, zero, none = self.stacks.starts(num_sentences), np.zeros(num_sentences), np.full(num_sentences, -1)
        return self._scored(Candidates(np.arange(num_sentences), zero, zero, top, none), none)

    def shift(self, analyses: Candidates, tokens: Ints) -> Analyses:
        """SHIFT one token on each of these stacks; scores already count it."""
        old, own = self.stacks.items(analyses.top), len(self.stacks) + np.arange(len(analyses))
        new, goes_on = self._pushed_on(analyses.top, old), old[:, at.IN_WORD] == 1
        new[:, FIRST] = np.where(goes_on, old[:, FIRST], own)
        new[:, NUM_ITEMS] += ~goes_on
        new[:, NUM_UNARY], new[:, at.TOP] = 0, WORD
        new[:, at.IN_WORD] = ~self.weights.ends_word[tokens]
        vectors = self.weights.tokens.index_select(0, to_device(tokens, self.weights.tokens.device))
        top = self.stacks.push(new, vectors)
        history = self.histories.append(analyses.history, np.full(len(top), SHIFT))
        return self._scored(
            Candidates(analyses.sentence, analyses.score, analyses.shortfall, top, history), top * 0 - 1
        )

    def apply(self, analyses: Analyses, sources: Ints, actions: Ints, score: Floats) -> Analyses:
        """The successors of ``analyses[sources]`` by actions other than SHIFT and FINISH, with their scores."""
        top, label = analyses.top[sources], analyses.items[sources, LABEL]
        is_reduce = actions < self._first_reach
        label = np.where(is_reduce, actions - FIRST_REDUCE, label)
        if self.weights.config.has_reach:
            made, reach = np.flatnonzero(~is_reduce), actions - self._first_reach + 1
        else:
            made, reach = np.arange(len(actions)), np.minimum(self.stacks.items(top)[:, NUM_ITEMS], 2)
        top = top.copy()
        if len(made):
            top[made] = self._compose(top[made], label[made], reach[made])
        label[made] = NONE
        history = self.histories.append(analyses.history[sources], actions)
        new = Candidates(analyses.sentence[sources], score, analyses.shortfall[sources], top, history)
        return self._scored(new, label)

    @staticmethod
    def _pushed_on(top: Ints, old: Ints) -> Ints:
        """The integers of a row on each of these."""
        new = old.copy()
        new[:, at.BELOW] = new[:, at.BEFORE] = top
        for column in (at.HEIGHT, at.PLACE, at.NUM_BEFORE):
            new[:, column] = old[:, column] + 1
        return new

    def _compose(self, top: Ints, label: Ints, reach: Ints) -> Ints:
        """The rows of constituents of so many items each."""
        old = self.stacks.items(top)
        first = self.stacks.items(self._items_of(top, int(reach.max()))[np.arange(len(top)), reach - 1])[:, FIRST]
        begins = self.stacks.items(first)
        below = begins[:, at.BELOW]
        outer = self.stacks.items(below)
        new = self._pushed_on(top, old)
        new[:, at.BELOW], new[:, at.HEIGHT] = below, outer[:, at.HEIGHT] + 1
        if self.weights.config.hides:
            new[:, at.BEFORE], new[:, at.NUM_BEFORE] = below, outer[:, at.NUM_BEFORE] + 1
        new[:, FIRST] = len(self.stacks) + np.arange(len(top))
        new[:, NUM_ITEMS] -= reach - 1
        new[:, NUM_UNARY] = np.where(reach == 1, old[:, NUM_UNARY] + 1, 0)
        new[:, at.TOP] = CONSTITUENT
        vectors = self.weights.marks.index_select(0, to_device(1 + label, self.weights.marks.device))
        num_parts = old[:, at.HEIGHT] - begins[:, at.HEIGHT] + 1
        if self.weights.composer is not None:
            return self.stacks.push(new, self.stacks.composed(top, num_parts, vectors))
        return self.stacks.push(new, vectors, Composing(np.arange(len(top)), top, num_parts))

    def _items_of(self, top: Ints, most: int) -> Ints:
        """The rows in which the topmost items of stacks end, the first one on top; below the last one START: (n, S)."""
        lists = np.zeros((len(top), most), np.int64)
        for place in range(most):
            lists[:, place] = top
            first = np.maximum(self.stacks.items(top)[:, FIRST], 0)  # START has none
            top = np.maximum(self.stacks.items(first)[:, at.BELOW], 0)
        return lists

    def _scored(self, new: Candidates, label: Ints) -> Analyses:
        """Analyses with what may come next; those with a ``label`` have still to reach."""
        items, outputs = self.stacks.items(new.top), self.stacks.outputs(new.top)
        items[:, LABEL] = label
        stack = Stack(items[:, NUM_ITEMS], items[:, at.TOP], items[:, NUM_UNARY], items[:, at.IN_WORD] == 1)
        log_probs, waits = np.full((len(new), self.num_actions), -np.inf), np.flatnonzero(label != NONE)
        logits = self.weights.actions(outputs)[: len(new)].double().cpu().numpy()
        if self.weights.config.softmax == "one":
            of_shift = log_normalisers(self.weights.words, outputs[: len(new)])
            logits = np.concatenate([of_shift[:, None], logits], 1)
        of_actions = log_softmax(logits, valid_actions(self.weights.config, stack, self.weights.num_labels))
        log_probs[:, : self._first_reach], log_probs[:, -1] = of_actions[:, :-1], of_actions[:, -1]
        if len(waits):
            log_probs[waits] = -np.inf
            log_probs[waits, self._first_reach : -1] = self._reach_log_probs(
                new.top[waits], label[waits], stack.take(waits)
            )
        return Analyses(**vars(new), items=items, outputs=outputs[: len(new)], log_probs=log_probs)

    def _reach_log_probs(self, top: Ints, label: Ints, stack: Stack) -> Floats:
        """log p of each number of items, for these stacks: (n, max_stack)."""
        pointer, most = self.weights.pointer, self.weights.config.max_stack
        assert pointer is not None
        outputs = self.stacks.outputs(top)
        queries = pointer.queries(outputs, to_device(padded(label), outputs.device))[: len(top)]
        lists = self._items_of(top, int(stack.num_items.max()))
        logits = queries.new_zeros(len(top), most)  # as wide for all, so that sums do not depend on company
        for block in blocks(len(top), _ROWS):
            logits[block, : lists.shape[1]] = (self.stacks.keys(lists[block]) * queries[block, None]).sum(2)
        reach = np.arange(1, most + 1)
        valid = (reach <= stack.num_items[:, None]) & ((reach > 1) | may_be_unary(self.weights.config, stack)[:, None])
        return log_softmax(logits.double().cpu().numpy(), valid)

    def outputs(self, tops: Ints) -> Tensor:
        """Hidden states of stacks with these tops: (n, D)."""
        return self.stacks.outputs(tops)[: len(tops)]

    def num_open(self, tops: Ints) -> Ints:
        """Words and constituents on stacks with these tops: (n,)."""
        return self.stacks.items(tops)[:, NUM_ITEMS]

    def towards_end(self, analyses: Analyses) -> Bools:
        """Mark the actions after which the sentence may end without another SHIFT: all others."""
        return closing_actions(self, analyses)

    def collect(self, tops: Sequence[Ints], histories: Sequence[Ints]) -> tuple[Ints, Ints]:
        """Drop what these stacks and histories do not need; returns new numbers of old rows and of old histories."""
        return self.stacks.keep(np.concatenate(tops)), self.histories.keep(np.concatenate(histories))

    def moved(self, analyses: Scored, rows: Ints, histories: Ints) -> Scored:
        """The same analyses after ``collect``."""
        top = rows[analyses.top]
        items = self.stacks.items(top)
        items[:, LABEL] = analyses.items[:, LABEL]
        return replace(analyses, top=top, history=renumbered(histories, analyses.history), items=items)

    def copy(self) -> BottomUpMachine:
        """An independent copy."""
        new = copy.copy(self)
        new.stacks, new.histories = self.stacks.copy(), self.histories.copy()
        return new
