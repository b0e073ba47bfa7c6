"""The machines of Transformer Grammars on a GPU (see ``search/on_device.py`` and ``search/device_attention.py``).

They do what those of ``machine.py`` do. A row has a list of the rows on the stack and, unless these are all that is
seen, another of the rows that are seen. Where an item begins is a place on the stack. A closed constituent is pushed in
that place; COMPOSE, which makes it, sees the parts that were there, and STACK, which predicts, sees the new stack.

Shapes: n new rows, of which the first c are closed constituents, W places of a list, D units.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor
from torch.nn import functional

from treelm.models.search.device_attention import DeviceAttention
from treelm.models.search.device_rows import (
    IN_WORD,
    NUM_BEFORE,
    NUM_COMMON,
    NUM_NEEDED,
    NUM_OPEN,
    ValidActions,
    masked_log_softmax,
)
from treelm.models.search.machine import BINARY_GROUPS
from treelm.models.search.on_device import RowCounts
from treelm.models.search.validity import CONSTITUENT, EMPTY, OPEN, WORD
from treelm.models.transformer_grammar.arena import SearchWeights
from treelm.models.transformer_grammar.bottom_up import FIRST_REDUCE, may_be_unary, valid_bottom_up
from treelm.models.transformer_grammar.positions import relative, seen_by_heads
from treelm.models.transformer_grammar.trees import NONE, Stack
from treelm.trees.transitions import FIRST_NT, REDUCE

# Columns of integers of a row. Names that ``arena.py`` has too mean the same, but OPENED is a place on the stack.
OPENED, LABEL, NUM_CONSECUTIVE, TOP, DEPTH, NUM_CHILDREN = range(NUM_COMMON, NUM_COMMON + 6)
HEIGHT, PLACE = NUM_COMMON + 6, NUM_COMMON + 7  # also the places of a row in its two lists
NUM_COLUMNS = NUM_COMMON + 8
STACK = 0  # the first list; what is seen is in the last one

_MEASURES = {"depth": DEPTH, "height": HEIGHT, "place": PLACE}


class DeviceGrammar(DeviceAttention, ABC):
    """What both orders of actions have in common; a ``DeviceMachine``."""

    def __init__(self, weights: SearchWeights, num_actions: int, starts: Tensor | None) -> None:
        """Push START or, with ``starts`` (n, D), which are added to its vector, one for each sentence."""
        config, self._weights = weights.config, weights
        num_lists = 1 if config.hides or not config.composes else 2
        pointer, composer = weights.pointer, weights.composer
        super().__init__(
            weights.layers,
            weights.norm,
            num_lists=num_lists,
            num_row_lists=num_lists,
            num_actions=num_actions,
            num_columns=NUM_COLUMNS,
            # The vector of the row, and its key for the pointer.
            widths=[
                0 if composer is None else weights.tokens.shape[1],
                0 if pointer is None else pointer.labels.shape[1],
            ],
            words=weights.words,
            tokens=weights.tokens,
        )
        self._ends_word = torch.from_numpy(weights.ends_word).to(weights.tokens.device)
        vectors = weights.marks[:1] if starts is None else weights.marks[:1] + starts.to(weights.marks)
        self._num_initial = len(vectors)
        items = torch.zeros((len(vectors), NUM_COLUMNS), dtype=torch.int64, device=vectors.device)
        items[:, [OPENED, LABEL]], items[:, TOP], items[:, NUM_NEEDED] = NONE, EMPTY, 1
        self._push(items, vectors, torch.zeros_like(items[:, 0]))

    @abstractmethod
    def _next_log_probs(self, items: Tensor, outputs: Tensor) -> Tensor:
        """log p of every action after rows with these integers and outputs: (n, A)."""

    def shift(self, tops: Tensor, tokens: Tensor) -> Tensor:
        """The rows after SHIFT of one token each: (n,)."""
        new = self._pushed_on(tops)
        self._count_word(new, self._ends_word[tokens])
        new[:, NUM_CONSECUTIVE], new[:, TOP] = 0, WORD
        new[:, IN_WORD] = (~self._ends_word[tokens]).long()
        self._lengthen()
        return self._push(new, self._weights.tokens[tokens], tops, looks_back=True)

    @abstractmethod
    def _count_word(self, new: Tensor, ends_word: Tensor) -> None:
        """Change the integers of new rows of tokens, some of which end words."""

    def _pushed_on(self, tops: Tensor) -> Tensor:
        """The integers of a new row on each of these rows, if nothing is taken off the stack."""
        new = self._items[tops]
        new[:, HEIGHT] += 1
        new[:, PLACE] += 1
        return new

    def _stack(self, tops: Tensor) -> Tensor:
        return self._lists[:, STACK].index_select(0, tops)

    def _push(
        self, items: Tensor, vectors: Tensor, tops: Tensor, num_closed: int = 0, *, looks_back: bool = False
    ) -> Tensor:
        """Push rows with these integers, of which HEIGHT is their place on the stack, and vectors on ``tops`` (n,).

        The first ``num_closed`` take the place of their parts.
        """
        config, first, places = self._weights.config, self._length, self._places
        if self._weights.composer is not None:
            closed = vectors[:num_closed]
            vectors = torch.cat([self._composed(tops[:num_closed], items[:num_closed], closed), vectors[num_closed:]])
        again = num_closed if config.composition == "internal" else 0
        own = first + torch.arange(len(items) + again, device=tops.device)[:, None]
        self._reserve(len(own))
        looking = items[:again].clone()
        looking[:, PLACE] += 1
        self._items[first : first + len(own)] = torch.cat([items, looking])
        old, ends = self._lists[tops], items[:, HEIGHT : HEIGHT + self._lists.shape[1], None]
        lists = old.where(places < ends, 0).where(places != ends, own[: len(items), None])
        # COMPOSE sees its parts and itself; STACK sees what is seen from now on, COMPOSE included, and itself.
        now, last, behind = lists[:, -1], ends[:, -1], self._items[tops[:again], HEIGHT, None] + 1
        composing = old[:again, STACK].where(places != behind, own[:again])
        seen = torch.cat([composing, now[again:], now[:again].where(places != last[:again] + 1, own[len(items) :])])
        begin = torch.cat([ends[:again, STACK], torch.zeros_like(own[again:])])
        end = torch.cat([behind, last[again:], last[:again] + 1])
        hidden = ((places < begin) | (places > end))[:, None]
        if config.structured_heads:
            hidden = ~seen_by_heads(~hidden, items[:, OPENED, None], places[None], config.num_heads)[:, :, 0]
        where = self._items[:, _MEASURES[config.positions]]
        distance = relative(where[first : first + len(own), None] - where[seen], config)
        factors = self._weights.value_factors if looks_back else None
        outputs = self._attend(torch.cat([vectors, vectors[:again]]), seen, hidden, [distance], factors)
        outputs = torch.cat([outputs[len(items) :], outputs[again : len(items)]])
        items[:, NUM_BEFORE] = last[:, 0]
        parts = {-1: outputs}
        if self._weights.composer is not None:
            parts[-3] = vectors
        if self._weights.pointer is not None:
            parts[-2] = self._weights.pointer.key(outputs)
        return self._append(items, lists, self._next_log_probs(items, outputs), parts)

    def _composed(self, tops: Tensor, items: Tensor, labels: Tensor) -> Tensor:
        """External composition: the vectors of constituents (c, D) with these vectors of labels (c, D)."""
        composer = self._weights.composer
        assert composer is not None
        if len(tops) == 0:
            return labels
        children = items[:, HEIGHT, None] + (not self._weights.config.is_bottom_up) + self._places
        missing = children > self._items[tops, HEIGHT, None]
        rows = self._stack(tops).gather(1, children.clamp(max=len(self._places) - 1))
        vectors = self._get(-3, rows.flatten()).view(*rows.shape, -1)
        parts = torch.cat([labels[:, None], vectors], 1).double()
        made: Tensor = composer(parts, torch.cat([torch.zeros_like(missing[:, :1]), missing], 1))
        return made.to(labels.dtype)


class DeviceTopDown(DeviceGrammar):
    """The machine of top-down derivations, by NT, SHIFT and REDUCE."""

    def __init__(self, weights: SearchWeights, *, starts: Tensor | None = None) -> None:
        """Start with START alone. ``starts``: see ``DeviceGrammar``."""
        self._valid = ValidActions(weights.config.rule, weights.num_labels, weights.tokens.device)
        super().__init__(weights, FIRST_NT + weights.num_labels, starts)
        self.num_groups = BINARY_GROUPS if weights.config.rule.is_binary else 1

    def _next_log_probs(self, items: Tensor, outputs: Tensor) -> Tensor:
        state = [items[:, column] for column in (NUM_OPEN, NUM_CONSECUTIVE, TOP, IN_WORD)]
        return masked_log_softmax(self._weights.actions(outputs), self._valid(*state, items[:, NUM_CHILDREN] == 1))

    def _count_word(self, new: Tensor, ends_word: Tensor) -> None:
        new[:, DEPTH] = new[:, NUM_OPEN] + 1
        new[:, NUM_CHILDREN] += ends_word
        new[:, NUM_NEEDED] -= 1 - new[:, IN_WORD]

    def apply(self, tops: Tensor, actions: Tensor, row_counts: RowCounts) -> Tensor:
        """The rows after one action each (m,), none of which is SHIFT or ends the sentence; row 0 for action -1."""
        self._lengthen()
        closes, opens, rows, _ = self._chosen(actions == REDUCE, actions > REDUCE, row_counts)
        index = torch.cat([closes, opens])
        if len(index):
            tops = tops[index]
            closed, labels = self._closed(tops[: len(closes)])
            opened = (actions[opens] - FIRST_NT).clamp(min=0)
            items = torch.cat([closed, self._opened(tops[len(closes) :], opened)])
            marks = torch.cat([self._weights.num_labels + labels, opened])  # START is the first
            self._push(items, self._weights.marks[1 + marks], tops, len(closes))
        return rows.clamp(max=self._length - 1)

    def _opened(self, tops: Tensor, labels: Tensor) -> Tensor:
        """The integers of rows that NT pushes on ``tops`` (n,)."""
        new = self._pushed_on(tops)
        new[:, OPENED], new[:, LABEL] = new[:, HEIGHT], labels
        for column in (NUM_OPEN, NUM_CONSECUTIVE, NUM_NEEDED):
            new[:, column] += 1
        new[:, TOP], new[:, NUM_CHILDREN], new[:, IN_WORD], new[:, DEPTH] = OPEN, 0, 0, new[:, NUM_OPEN]
        return new

    def _closed(self, tops: Tensor) -> tuple[Tensor, Tensor]:
        """The integers of rows that REDUCE pushes on ``tops`` (n,), and the numbers of their marks (n,)."""
        new, composes = self._pushed_on(tops), self._weights.config.composes
        opened, labels = new[:, OPENED].clamp(min=1), new[:, LABEL].clamp(min=0)
        outer = self._items[self._stack(tops).gather(1, opened[:, None] - 1)[:, 0]]
        for column in (OPENED, LABEL, NUM_CHILDREN):
            new[:, column] = outer[:, column]
        new[:, NUM_CHILDREN] += 1
        new[:, DEPTH] = new[:, NUM_OPEN]
        new[:, NUM_OPEN] -= 1
        new[:, NUM_CONSECUTIVE], new[:, TOP], new[:, IN_WORD] = 0, CONSTITUENT, 0
        if composes:
            new[:, HEIGHT] = opened
        return new, labels if composes else torch.zeros_like(labels)


# What these columns hold bottom-up.
FIRST = OPENED  # the place on the stack where the item on top begins: of a word in pieces, that of its first piece
NUM_ITEMS = NUM_OPEN  # items on the stack
NUM_UNARY = NUM_CONSECUTIVE  # constituents of one item, one around the other, that the item on top consists of


class DeviceBottomUp(DeviceGrammar):
    """The machine of bottom-up derivations, by SHIFT, REDUCE and REACH.

    Where a REACH must follow, REDUCE pushes a row that has no position and the lists of the row before.
    """

    def __init__(self, weights: SearchWeights, *, starts: Tensor | None = None) -> None:
        """Start with START alone. ``starts``: see ``DeviceGrammar``."""
        self._first_reach = FIRST_REDUCE + weights.num_labels
        config, device = weights.config, weights.tokens.device
        # All cases of the rule of ``bottom_up.py``, and whether the item on top may become a constituent by itself.
        self._sizes = (config.max_stack + 1, 4, config.max_unary + 2, 2)
        cases = torch.cartesian_prod(*map(torch.arange, self._sizes)).numpy()
        stack = Stack(cases[:, 0], cases[:, 1], cases[:, 2], cases[:, 3] == 1)
        self._valid = torch.from_numpy(valid_bottom_up(config, stack, weights.num_labels)).to(device)
        self._may_be_unary = torch.from_numpy(may_be_unary(config, stack)).to(device)
        super().__init__(weights, self._first_reach + weights.config.max_reach + 1, starts)
        self.ends_by_closing = False
        actions = torch.arange(self.num_actions, device=weights.tokens.device)
        makes = actions >= (self._first_reach if weights.config.has_reach else FIRST_REDUCE)
        self.num_closed = (makes & (actions < self.num_actions - 1)).long()

    def _case(self, items: Tensor) -> Tensor:
        """The rows of the tables of the rule for rows with these integers: (n,)."""
        index = torch.zeros_like(items[:, 0])
        for size, column in zip(self._sizes, (NUM_ITEMS, TOP, NUM_UNARY, IN_WORD), strict=True):
            index = index * size + items[:, column].clamp(0, size - 1)
        return index

    def _next_log_probs(self, items: Tensor, outputs: Tensor) -> Tensor:
        found = masked_log_softmax(self._weights.actions(outputs), self._valid[self._case(items)])
        reach = found.new_full((len(found), self._weights.config.max_reach), -torch.inf)
        return torch.cat([found[:, :-1], reach, found[:, -1:]], 1)

    def _count_word(self, new: Tensor, ends_word: Tensor) -> None:
        goes_on = new[:, IN_WORD]
        new[:, FIRST] = torch.where(goes_on == 1, new[:, FIRST], new[:, HEIGHT])
        new[:, NUM_ITEMS] += 1 - goes_on

    def apply(self, tops: Tensor, actions: Tensor, row_counts: RowCounts) -> Tensor:
        """The rows after one action each (m,), none of which is SHIFT or ends the sentence; row 0 for action -1."""
        self._lengthen()
        if self._weights.config.has_reach:
            makes, waits = actions >= self._first_reach, (actions > 0) & (actions < self._first_reach)
            labels, reach = self._items[:, LABEL][tops], actions - self._first_reach + 1
        else:
            makes, waits = actions > 0, torch.zeros_like(actions, dtype=torch.bool)
            labels, reach = actions - FIRST_REDUCE, self._items[:, NUM_ITEMS][tops].clamp(max=2)
        made, waiting, rows, _ = self._chosen(makes, waits, row_counts)
        labels = torch.where(waits, actions - FIRST_REDUCE, labels).clamp(min=0)
        if len(made):
            items = self._composed_of(tops[made], reach[made].clamp(min=1))
            self._push(items, self._weights.marks[1 + labels[made]], tops[made], len(made))
        if self._weights.pointer is not None and len(waiting):
            self._wait(tops[waiting], labels[waiting])
        return rows.clamp(max=self._length - 1)

    def _composed_of(self, tops: Tensor, reach: Tensor) -> Tensor:
        """The integers of constituents of the ``reach`` (n,) topmost items of stacks with these tops (n,)."""
        new, number = self._pushed_on(tops), self._numbers(tops)
        new[:, HEIGHT] = new[:, FIRST] = (number == reach[:, None]).long().argmax(1).clamp(min=1)
        new[:, NUM_ITEMS] -= reach - 1
        new[:, NUM_UNARY] = torch.where(reach == 1, new[:, NUM_UNARY] + 1, 0)
        new[:, TOP], new[:, IN_WORD], new[:, LABEL] = CONSTITUENT, 0, NONE
        return new

    def _numbers(self, tops: Tensor) -> Tensor:
        """The number of the item at each place of stacks with these tops, from 1 for the one on top: (n, W).

        It is 0 above the stack.
        """
        stack, places = self._stack(tops), self._places
        inside = places <= self._items[tops, HEIGHT, None]
        begins = ((self._items[:, FIRST][stack] == places) & inside).long()
        return (begins.flip(1).cumsum(1).flip(1) - begins + 1) * inside

    def _wait(self, tops: Tensor, labels: Tensor) -> None:
        """Push rows after which a REACH must follow, for REDUCEs of these labels (n,) on ``tops`` (n,)."""
        pointer, most = self._weights.pointer, self._weights.config.max_stack
        assert pointer is not None
        items, lists, number = self._items[tops], self._lists[tops], self._numbers(tops)
        at_places = self._scores(-2, lists[:, STACK], pointer.queries(self._get(-1, tops), labels))
        ends = (number != functional.pad(number[:, 1:], (0, 1))) & (self._places > 0)
        column = (number - 1).where(ends, most).clamp(0, most)
        logits = at_places.new_zeros(len(tops), most + 1).scatter_(1, column, at_places)[:, :-1]
        reach = torch.arange(1, most + 1, device=tops.device)
        valid = (reach > 1) | self._may_be_unary[self._case(items)][:, None]
        log_probs = self._log_probs.new_full((len(tops), self.num_actions), -torch.inf)
        log_probs[:, self._first_reach : -1] = masked_log_softmax(logits, valid & (reach <= items[:, NUM_ITEMS, None]))
        items[:, LABEL] = labels
        self._reserve(len(tops))
        self._append(items, lists, log_probs)
