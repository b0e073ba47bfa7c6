"""The machines of Transformer Grammars: they apply actions to many stacks at once, and score the next actions.

Top-down, the actions are NT, SHIFT and REDUCE. Bottom-up they are SHIFT, REDUCE of each label, REACH of one item, of
two items and so on, and FINISH. Only a REACH may follow a REDUCE, which does not change the stack by itself. In binary
trees there is no REACH, and REDUCE takes two items. The columns of a row, such as ``at.BELOW``, are those of
``arena.py``.
"""

from __future__ import annotations

import numpy as np
from torch import Tensor

from treelm.models.layers.devices import to_device
from treelm.models.search.analyses import Analyses, AnalysisTable
from treelm.models.search.batch_invariant import blocks, padded
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
from treelm.models.transformer_grammar import arena as at
from treelm.models.transformer_grammar.arena import NOTHING, Composing, KeyValueStacks, SearchWeights
from treelm.models.transformer_grammar.bottom_up import FIRST_REDUCE, may_be_unary, valid_bottom_up
from treelm.models.transformer_grammar.trees import NONE, Stack
from treelm.trees.transitions import FIRST_NT, REDUCE, SHIFT


class KeyValueMachine(Machine):
    """The stacks and histories of one search: what both orders of actions have in common."""

    weights: SearchWeights
    rows: KeyValueStacks

    @property
    def attention(self) -> Floats:
        """Normalised attention entropies of the tokens that the last ``shift`` read: (n, H, 2)."""
        return self.rows.attention

    def num_open(self, tops: Ints) -> Ints:
        """Open nonterminals of stacks with these tops or, bottom-up, words and constituents on them: (n,)."""
        return self.rows.items(tops)[:, at.NUM_OPEN]

    def _started(self, num_sentences: int) -> AnalysisTable:
        """One analysis for each sentence, before its first action."""
        top, zero = self.rows.starts(num_sentences), np.zeros(num_sentences)
        return AnalysisTable(np.arange(num_sentences), zero, zero, top, np.full(num_sentences, -1))

    @staticmethod
    def _pushed_on(top: Ints, old: Ints) -> Ints:
        """The integers of a new row on each of these rows, with integers ``old``, if nothing is taken off the stack."""
        new = old.copy()
        new[:, at.BELOW] = new[:, at.BEFORE] = top
        for column in (at.HEIGHT, at.PLACE, at.NUM_BEFORE):
            new[:, column] = old[:, column] + 1
        return new

    def _shifted(self, analyses: AnalysisTable, new: Ints, tokens: Ints) -> AnalysisTable:
        """Push the rows of tokens, whose integers are ``new`` but for those that are the same for all systems."""
        new[:, at.NUM_CONSECUTIVE], new[:, at.TOP] = 0, WORD
        new[:, at.IN_WORD] = ~self.weights.ends_word[tokens]
        top = self.rows.push_tokens(new, self._rows_of(self.weights.tokens, tokens))
        history = self.histories.append(analyses.history, np.full(len(top), SHIFT))
        return AnalysisTable(analyses.sentence, analyses.score, analyses.deficit, top, history)

    @staticmethod
    def _rows_of(vectors: Tensor, numbers: Ints) -> Tensor:
        return vectors.index_select(0, to_device(numbers, vectors.device))

    def _put_on(self, new: Ints, below: Ints) -> Ints:
        """Let the rows ``new`` lie on ``below``, in place of their parts; returns the integers of ``below``."""
        outer = self.rows.items(below)
        if self.weights.config.composes:
            new[:, at.BELOW], new[:, at.HEIGHT] = below, outer[:, at.HEIGHT] + 1
        if self.weights.config.hides:
            new[:, at.BEFORE], new[:, at.NUM_BEFORE] = below, outer[:, at.NUM_BEFORE] + 1
        return outer

    def _action_log_probs(self, outputs: Tensor, valid: Bools) -> Floats:
        """log p of each action among the valid ones (n, A), from padded outputs."""
        return log_softmax(self.weights.actions(outputs)[: len(valid)].double().cpu().numpy(), valid)


class TopDownMachine(KeyValueMachine):
    """The machine of top-down derivations, by NT, SHIFT and REDUCE."""

    def __init__(self, weights: SearchWeights, *, starts: Tensor | None = None) -> None:
        """Start with START alone. ``starts``: see ``KeyValueStacks``."""
        num_groups = BINARY_GROUPS if weights.config.rule.is_binary else 1
        super().__init__(FIRST_NT + weights.num_labels, ends_by_closing=True, num_groups=num_groups)
        self.weights, self.rows = weights, KeyValueStacks(weights, starts)

    def start(self, num_sentences: int) -> Analyses:
        """One analysis for each sentence, before its first action."""
        return self._scored(self._started(num_sentences))

    def shift(self, analyses: AnalysisTable, tokens: Ints) -> Analyses:
        """SHIFT one token on each of these stacks; the scores already include it."""
        new = self._pushed_on(analyses.top, self.rows.items(analyses.top))
        new[:, at.NUM_CHILDREN] += self.weights.ends_word[tokens]
        new[:, at.NUM_NEEDED] -= new[:, at.IN_WORD] == 0
        return self._scored(self._shifted(analyses, new, tokens))

    def apply(self, analyses: Analyses, sources: Ints, actions: Ints, score: Floats) -> Analyses:
        """The successors of ``analyses[sources]`` by actions other than SHIFT, with their scores."""
        top = analyses.top[sources]
        old = self.rows.items(top)
        new = self._pushed_on(top, old)
        opens, closes = np.flatnonzero(actions != REDUCE), np.flatnonzero(actions == REDUCE)
        new[opens, at.OPENED], new[opens, at.LABEL] = len(self.rows) + opens, actions[opens] - FIRST_NT
        new[opens, at.NUM_OPEN] += 1
        new[opens, at.NUM_CONSECUTIVE] += 1
        new[opens, at.TOP], new[opens, at.NUM_CHILDREN] = OPEN, 0
        new[opens, at.NUM_NEEDED] += 1
        new[closes] = self._closed(old[closes], new[closes])
        new[:, at.IN_WORD] = 0
        mark = 1 + actions - FIRST_NT  # START is the first
        mark[closes] = 1 + self.weights.num_labels + (old[closes, at.LABEL] if self.weights.config.composes else 0)
        vectors = self._rows_of(self.weights.marks, mark)
        taking = self._composing(closes, top[closes], old[closes])
        if self.weights.composer is not None:
            index = to_device(closes, vectors.device)
            composed = self.rows.composed(taking.tops, taking.num_parts - 1, vectors.index_select(0, index))
            vectors, taking = vectors.index_copy(0, index, composed), NOTHING
        new_top = self.rows.push(new, vectors, taking)
        history = self.histories.append(analyses.history[sources], actions)
        sentence, deficit = analyses.sentence[sources], analyses.deficit[sources]
        return self._scored(AnalysisTable(sentence, score, deficit, new_top, history))

    def _composing(self, closes: Ints, tops: Ints, old: Ints) -> Composing:
        """What the REDUCEs ``closes`` take off the stacks with these tops: everything down to the open nonterminal."""
        if not self.weights.config.composes:
            return NOTHING
        opened = self.rows.items(old[:, at.OPENED])
        return Composing(closes, tops, old[:, at.HEIGHT] - opened[:, at.HEIGHT] + 1)

    @staticmethod
    def _pushed_on(top: Ints, old: Ints) -> Ints:
        """The integers of a new row on each of these rows, with integers ``old``, as SHIFT or NT pushes it."""
        new = KeyValueMachine._pushed_on(top, old)
        new[:, at.DEPTH] = old[:, at.NUM_OPEN] + 1
        return new

    def _closed(self, old: Ints, new: Ints) -> Ints:
        """The integers of the rows that REDUCE pushes, from those on top, ``old``, and ``new`` from ``_pushed_on``."""
        outer = self._put_on(new, self.rows.items(old[:, at.OPENED])[:, at.BELOW])
        new[:, at.OPENED], new[:, at.LABEL] = outer[:, at.OPENED], outer[:, at.LABEL]
        new[:, at.NUM_OPEN], new[:, at.DEPTH] = old[:, at.NUM_OPEN] - 1, old[:, at.NUM_OPEN]
        new[:, at.NUM_CONSECUTIVE], new[:, at.TOP] = 0, CONSTITUENT
        new[:, at.NUM_CHILDREN] = outer[:, at.NUM_CHILDREN] + 1
        return new

    def _scored(self, new: AnalysisTable) -> Analyses:
        """Analyses with log p of the next action."""
        items, outputs = self.rows.items(new.top), self.rows.outputs(new.top)
        configuration = Configuration(
            num_open=items[:, at.NUM_OPEN],
            num_consecutive=items[:, at.NUM_CONSECUTIVE],
            top=items[:, at.TOP],
            in_word=items[:, at.IN_WORD] == 1,
            only_child=items[:, at.NUM_CHILDREN] == 1,
        )
        valid = valid_actions(self.weights.config.rule, configuration, self.weights.num_labels)
        log_probs = self._action_log_probs(outputs, valid)
        return Analyses(**vars(new), outputs=outputs[: len(new)], log_probs=log_probs)

    def groups(self, tops: Ints) -> Ints:
        """The group of stacks with these tops: (n,)."""
        if self.num_groups == 1:
            return super().groups(tops)
        items = self.rows.items(tops)
        return groups_of_binary_trees(items[:, at.NUM_NEEDED] + items[:, at.IN_WORD])


# What these columns hold bottom-up.
FIRST = at.OPENED  # the first row of the item on top: of a word in pieces, that of its first piece
NUM_ITEMS = at.NUM_OPEN  # items on the stack
NUM_UNARY = at.NUM_CONSECUTIVE  # constituents of one item, one around the other, that the item on top consists of

_ROWS = 64  # REDUCEs whose keys are gathered at once


class BottomUpMachine(KeyValueMachine):
    """The machine of bottom-up derivations, by SHIFT, REDUCE and REACH."""

    def __init__(self, weights: SearchWeights, *, starts: Tensor | None = None) -> None:
        """Start with START alone. ``starts``: see ``KeyValueStacks``."""
        config, self._first_reach = weights.config, FIRST_REDUCE + weights.num_labels
        num_actions = self._first_reach + config.max_reach + 1  # SHIFT, REDUCE (label), REACH (size), FINISH
        num_closed = np.zeros(num_actions, np.int64)
        num_closed[self._first_reach if config.has_reach else FIRST_REDUCE : -1] = 1  # what makes a constituent
        super().__init__(num_actions, ends_by_closing=False, num_closed=num_closed)
        self.weights, self.rows = weights, KeyValueStacks(weights, starts)

    def start(self, num_sentences: int) -> Analyses:
        """One analysis for each sentence, before its first action."""
        return self._scored(self._started(num_sentences), np.full(num_sentences, NONE))

    def shift(self, analyses: AnalysisTable, tokens: Ints) -> Analyses:
        """SHIFT one token on each of these stacks; the scores already include it."""
        old, own = self.rows.items(analyses.top), len(self.rows) + np.arange(len(analyses))
        new, goes_on = self._pushed_on(analyses.top, old), old[:, at.IN_WORD] == 1
        new[:, FIRST] = np.where(goes_on, old[:, FIRST], own)
        new[:, NUM_ITEMS] += ~goes_on
        return self._scored(self._shifted(analyses, new, tokens), np.full(len(new), NONE))

    def apply(self, analyses: Analyses, sources: Ints, actions: Ints, score: Floats) -> Analyses:
        """The successors of ``analyses[sources]`` by actions other than SHIFT and FINISH, with their scores."""
        top, before = analyses.top[sources], analyses.history[sources]
        is_reduce = actions < self._first_reach
        label = np.where(is_reduce, actions, self.histories.last(before)) - FIRST_REDUCE  # REACH follows its REDUCE
        if self.weights.config.has_reach:
            made, reach = np.flatnonzero(~is_reduce), actions - self._first_reach + 1
        else:
            made, reach = np.arange(len(actions)), np.minimum(self.rows.items(top)[:, NUM_ITEMS], 2)
        top = top.copy()
        if len(made):
            top[made] = self._compose(top[made], label[made], reach[made])
        label[made] = NONE
        history = self.histories.append(before, actions)
        new = AnalysisTable(analyses.sentence[sources], score, analyses.deficit[sources], top, history)
        return self._scored(new, label)

    def _compose(self, top: Ints, label: Ints, reach: Ints) -> Ints:
        """Push constituents with these labels, of the ``reach`` (n,) topmost items; returns their rows (n,)."""
        old = self.rows.items(top)
        first = self.rows.items(self._items_of(top, int(reach.max()))[np.arange(len(top)), reach - 1])[:, FIRST]
        begins = self.rows.items(first)
        new = self._pushed_on(top, old)
        self._put_on(new, begins[:, at.BELOW])
        new[:, FIRST] = len(self.rows) + np.arange(len(top))
        new[:, NUM_ITEMS] -= reach - 1
        new[:, NUM_UNARY] = np.where(reach == 1, old[:, NUM_UNARY] + 1, 0)
        new[:, at.TOP] = CONSTITUENT
        vectors = self._rows_of(self.weights.marks, 1 + label)
        num_parts = old[:, at.HEIGHT] - begins[:, at.HEIGHT] + 1
        if self.weights.composer is not None:
            return self.rows.push(new, self.rows.composed(top, num_parts, vectors))
        return self.rows.push(new, vectors, Composing(np.arange(len(top)), top, num_parts))

    def _items_of(self, top: Ints, most: int) -> Ints:
        """The rows in which the ``most`` topmost items end, from the top; START below the last one: (n, most)."""
        lists = np.zeros((len(top), most), np.int64)
        for place in range(most):
            lists[:, place] = top
            first = np.maximum(self.rows.items(top)[:, FIRST], 0)  # START has none
            top = np.maximum(self.rows.items(first)[:, at.BELOW], 0)
        return lists

    def _scored(self, new: AnalysisTable, label: Ints) -> Analyses:
        """Analyses with log p of the next action; for those with a ``label`` a REACH must follow."""
        items, outputs = self.rows.items(new.top), self.rows.outputs(new.top)
        stack = Stack(items[:, NUM_ITEMS], items[:, at.TOP], items[:, NUM_UNARY], items[:, at.IN_WORD] == 1)
        log_probs, waits = np.full((len(new), self.num_actions), -np.inf), np.flatnonzero(label != NONE)
        valid = valid_bottom_up(self.weights.config, stack, self.weights.num_labels)
        of_actions = self._action_log_probs(outputs, valid)
        log_probs[:, : self._first_reach], log_probs[:, -1] = of_actions[:, :-1], of_actions[:, -1]
        if len(waits):
            log_probs[waits] = -np.inf
            log_probs[waits, self._first_reach : -1] = self._reach_log_probs(
                new.top[waits], label[waits], stack.take(waits)
            )
        return Analyses(**vars(new), outputs=outputs[: len(new)], log_probs=log_probs)

    def _reach_log_probs(self, top: Ints, label: Ints, stack: Stack) -> Floats:
        """log p of REACH of each number of items, for REDUCEs of these labels: (n, max_stack)."""
        pointer, most = self.weights.pointer, self.weights.config.max_stack
        assert pointer is not None
        outputs = self.rows.outputs(top)
        queries = pointer.queries(outputs, to_device(padded(label), outputs.device))[: len(top)]
        lists = self._items_of(top, int(stack.num_items.max()))
        logits = queries.new_zeros(len(top), most)  # of one width for all stacks, so that sums are batch-invariant
        for block in blocks(len(top), _ROWS):
            logits[block, : lists.shape[1]] = (self.rows.keys(lists[block]) * queries[block, None]).sum(2)
        reach = np.arange(1, most + 1)
        valid = (reach <= stack.num_items[:, None]) & ((reach > 1) | may_be_unary(self.weights.config, stack)[:, None])
        return log_softmax(logits.double().cpu().numpy(), valid)
