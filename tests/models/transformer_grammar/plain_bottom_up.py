"""Bottom-up Transformer Grammars straight from their equations: a stack of items, composed as far as REDUCE reaches."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from types import SimpleNamespace
from typing import Any, NamedTuple

from torch import Tensor

from tests.models.transformer_grammar.plain import SHIFT, PlainGrammar, State, begun, binarised


class Item(NamedTuple):
    """A word or a constituent on the stack."""

    num_rows: int  # positions of it that are on the stack
    output: Any  # that predicted what came next when it was complete
    is_word: bool = True
    num_unary: int = 0


@dataclass(frozen=True)
class Stacked(State):
    items: tuple[Item, ...] = ()
    label: int | None = None  # of a REDUCE that has still to reach


class PlainBottomUp(PlainGrammar):
    """SHIFT is 0, then come REDUCE of each label, REACH of 1, 2, .. items (n-ary trees), and FINISH."""

    def __init__(self, model: Any) -> None:
        super().__init__(model)
        self.first_reach = 1 + self.num_labels
        self.finish = self.first_reach + (0 if model.config.binary else model.config.max_stack)
        # For the oracle of the search, FINISH ends.
        self.config = SimpleNamespace(**{**asdict(model.config), "order": "in-order"})

    def initial(self) -> State:
        return self._read(Stacked(begun(self.config)), [self.parameters["start_embedding"]])

    def may_be_unary(self, state: Stacked) -> bool:
        if self.config.binary:
            return len(state.items) == 1 and state.items[-1].is_word
        return bool(state.items) and state.items[-1].num_unary < self.config.max_unary

    def valid(self, state: State) -> list[int]:
        assert isinstance(state, Stacked)
        height = len(state.items)
        if state.label is not None:
            least = 1 if self.may_be_unary(state) else 2
            return [self.first_reach + reach - 1 for reach in range(least, height + 1)]
        if state.in_word:
            return [SHIFT]
        is_one = height == 1 and not state.items[0].is_word
        shifts = height < self.config.max_stack
        if self.config.binary and is_one and state.items[0].num_unary:
            shifts = False
        reduces = height >= 2 or self.may_be_unary(state)
        labels = [1 + label for label in range(self.num_labels)] if reduces else []
        return [*([SHIFT] if shifts else []), *labels, *([self.finish] if is_one else [])]

    def action_log_probs(self, state: State) -> dict[int, Tensor]:
        assert isinstance(state, Stacked)
        if state.label is None:
            return self._of_actions(self.valid(state), state)
        query = self.parameters["pointer.query.weight"] @ state.output + self.parameters["pointer.query.bias"]
        query = query + self.parameters["pointer.labels"][state.label]
        valid, scale = self.valid(state), math.sqrt(len(query))
        items = [state.items[-(reach - self.first_reach + 1)] for reach in valid]
        logits = [query @ (self.parameters["pointer.key.weight"] @ item.output) / scale for item in items]
        return dict(zip(valid, self.log_softmax(logits), strict=True))

    def apply(self, state: State, action: int, token: int | None = None) -> State:
        assert isinstance(state, Stacked)
        assert action in self.valid(state)
        if action == self.finish:
            return replace(state, is_finished=True)
        if action == SHIFT:
            return self._shift(state, token)
        is_reach = action >= self.first_reach
        if not (is_reach or self.config.binary):
            return replace(state, label=action - 1)
        label = state.label if is_reach else action - 1
        return self._compose(state, label, action - self.first_reach + 1 if is_reach else min(2, len(state.items)))

    def _shift(self, state: Stacked, token: int | None) -> State:
        new = replace(
            state, walk=state.walk.pushed(self.config, "WORD", 0), in_word=not self.ends_word[token], above=SHIFT
        )
        read = self._read(new, [self.parameters["word_embedding"][token]])
        assert isinstance(read, Stacked)
        items, rows = state.items, 1
        if state.in_word:
            *items, last = items  # type: ignore[assignment]
            rows += last.num_rows
        return replace(read, items=(*items, Item(rows, read.output)))

    def _compose(self, state: Stacked, label: int | None, reach: int) -> State:
        parts = state.items[-reach:]
        base = len(state.walk.stack) - sum(part.num_rows for part in parts)
        new = replace(state, walk=state.walk.composed(self.config, base), label=None, above=1)
        vector = self.parameters["close_embedding"][label]
        if self.config.composition == "external":
            vector = self.composed(vector, [state.vectors[number] for number in state.walk.stack[base:]])
        read = self._read(new, [vector] * (len(new.walk.positions) - len(state.walk.positions)))
        assert isinstance(read, Stacked)
        num_unary = parts[0].num_unary + 1 if reach == 1 else 0
        item = Item(1, read.output, is_word=False, num_unary=num_unary)
        return replace(read, items=(*state.items[:-reach], item))

    def derivation(self, tree: Any) -> list[int]:
        return [*self._of_node(binarised(tree, self.ends_word) if self.config.binary else tree), self.finish]

    def _of_node(self, node: Any) -> list[int]:
        if isinstance(node, int):
            return [SHIFT]
        label, children = node
        reach = sum(not isinstance(child, int) or bool(self.ends_word[child]) for child in children)
        reached = [] if self.config.binary else [self.first_reach + reach - 1]
        return [*(action for child in children for action in self._of_node(child)), 1 + label, *reached]


def plain_of(model: Any) -> PlainGrammar:
    return PlainBottomUp(model) if model.config.order == "bottom-up" else PlainGrammar(model)
