"""The machine of a bottom-up Transformer Grammar: it reads tokens and composes constituents on many stacks at once.

Actions of the search are SHIFT, REDUCE of each label, REACH of one item, of two and so on (not in binary trees, where
REDUCE takes two), and FINISH. REDUCE alone changes no stack: only a REACH may follow it.
"""

from __future__ import annotations

import numpy as np
from torch import Tensor

from treelm.models.layers.devices import to_device
from treelm.models.search.analyses import Analyses, Candidates, Scored
from treelm.models.search.machine import OneGroup, closing_actions
from treelm.models.search.rows import Bools, Floats, Ints, blocks, padded
from treelm.models.search.validity import CONSTITUENT, log_softmax
from treelm.models.transformer_grammar import stacks as at
from treelm.models.transformer_grammar.bottom_up import FIRST_REDUCE, NONE, Stack, may_be_unary, valid_actions
from treelm.models.transformer_grammar.machine import KeyValueMachine
from treelm.models.transformer_grammar.stacks import Composing
from treelm.models.transformer_grammar.weights import SearchWeights

# What these columns hold here.
FIRST = at.OPENED  # the row where the top item begins: of a word in pieces, that of the first one
NUM_ITEMS = at.NUM_OPEN  # on the stack
NUM_UNARY = at.NUM_CONSECUTIVE  # constituents of one item that the top is, one around the other
LABEL = at.LABEL  # of a REDUCE that has still to reach; -1 for none

_ROWS = 64  # REDUCEs whose keys are held at a time


class BottomUpMachine(KeyValueMachine, OneGroup):
    """Stacks on which SHIFT, REDUCE and REACH act."""

    def __init__(self, weights: SearchWeights, *, starts: Tensor | None = None) -> None:
        """Begin with START alone. ``starts``: see ``KeyValueStacks``."""
        super().__init__(weights, starts=starts)
        self._first_reach = FIRST_REDUCE + weights.num_labels

    @property
    def num_actions(self) -> int:
        """SHIFT, REDUCE of each label, REACH of each number of items, FINISH."""
        return self._first_reach + self.weights.config.max_reach + 1

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

    def start(self, num_sentences: int) -> Analyses:
        """One analysis a sentence, before the first action."""
        return self._scored(self._started(num_sentences), np.full(num_sentences, NONE))

    def shift(self, analyses: Candidates, tokens: Ints) -> Analyses:
        """SHIFT one token on each of these stacks; scores already count it."""
        old, own = self.stacks.items(analyses.top), len(self.stacks) + np.arange(len(analyses))
        new, goes_on = self._pushed_on(analyses.top, old), old[:, at.IN_WORD] == 1
        new[:, FIRST] = np.where(goes_on, old[:, FIRST], own)
        new[:, NUM_ITEMS] += ~goes_on
        return self._scored(self._shifted(analyses, new, tokens), np.full(len(new), NONE))

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

    def _compose(self, top: Ints, label: Ints, reach: Ints) -> Ints:
        """The rows of constituents of so many items each."""
        old = self.stacks.items(top)
        first = self.stacks.items(self._items_of(top, int(reach.max()))[np.arange(len(top)), reach - 1])[:, FIRST]
        begins = self.stacks.items(first)
        new = self._pushed_on(top, old)
        self._put_on(new, begins[:, at.BELOW])
        new[:, FIRST] = len(self.stacks) + np.arange(len(top))
        new[:, NUM_ITEMS] -= reach - 1
        new[:, NUM_UNARY] = np.where(reach == 1, old[:, NUM_UNARY] + 1, 0)
        new[:, at.TOP] = CONSTITUENT
        vectors = self._rows_of(self.weights.marks, 1 + label)
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
        valid = valid_actions(self.weights.config, stack, self.weights.num_labels)
        of_actions = self._action_log_probs(outputs, valid)
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

    def towards_end(self, analyses: Analyses) -> Bools:
        """Mark the actions after which the sentence may end without another SHIFT: all others."""
        return closing_actions(self, analyses)

    def moved(self, analyses: Scored, rows: Ints, histories: Ints) -> Scored:
        """The same analyses after ``collect``; stacks do not know what has still to reach."""
        new = super().moved(analyses, rows, histories)
        new.items[:, LABEL] = analyses.items[:, LABEL]
        return new
