"""The RNNG straight from its equations: one derivation, one item and one action at a time.

It is the oracle of the fast forms and shares nothing with them but the parameters of a model. States are never changed:
``apply`` gives a new one, so a search can branch. ``drop`` stands where dropout stands: it is the identity, or any
function of a vector. A sentence of a document begins from ``start`` besides the initial vector.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from treelm.models.layers.lstm import LSTMWeights
from treelm.models.rnng.network import RNNG

SHIFT, REDUCE, FIRST_LABEL = 0, 1, 2


@dataclass(frozen=True)
class Item:
    kind: str  # "initial", "word", "open" or "constituent"
    vector: Tensor
    states: tuple[tuple[Tensor, Tensor], ...]  # (h, c) of every layer
    label: int = -1
    is_unfinished: bool = False  # a token that does not end its word


@dataclass(frozen=True)
class State:
    stack: tuple[Item, ...]  # the initial item is at the bottom
    num_open: int = 0
    num_consecutive: int = 0
    in_word: bool = False
    is_finished: bool = False
    output: Tensor | None = None  # o


class PlainRNNG:
    def __init__(
        self, model: RNNG, drop: Callable[[Tensor], Tensor] = lambda vector: vector, start: Tensor | float = 0.0
    ) -> None:
        self.model = model
        self.drop, self.start = drop, start
        self.config = model.config
        self.num_labels = len(model.labels)
        self.finish = FIRST_LABEL + self.num_labels
        self.ends_word = model.vocabulary.ends_word.tolist()

    def initial(self) -> State:
        vector = self.drop(self.model.initial_embedding + self.start)
        zero = vector.new_zeros(self.config.hidden_size)
        below = Item("none", vector, tuple((zero, zero) for _ in self.model.stack))
        return self._push(State(stack=()), below, Item("initial", vector, ()))

    def valid(self, state: State) -> list[int]:
        """The valid actions: SHIFT 0, REDUCE 1, NT(X) 2 + X, FINISH."""
        if state.is_finished:
            return []
        if state.in_word:
            return [SHIFT]
        top = state.stack[-1].kind
        labels = list(range(FIRST_LABEL, self.finish))
        if state.num_open >= self.config.max_open or state.num_consecutive >= self.config.max_consecutive:
            labels = []
        if self.config.order == "top-down":
            if state.num_open == 0:
                return labels
            if self.config.is_binary:
                return self._valid_binary(state, labels)
            return [SHIFT] + ([REDUCE] if top != "open" else []) + labels
        if top == "initial":
            return [SHIFT]
        if state.num_open == 0:
            return labels + ([self.finish] if top == "constituent" else [])
        return [SHIFT, REDUCE] + (labels if top != "open" else [])

    def _children(self, state: State) -> list[int]:
        """How many children each open nonterminal has so far."""
        children: list[int] = []
        for item in state.stack:
            if item.kind == "open":
                children.append(0)
            if item.kind == "constituent" and self.config.composition == "none":
                children.pop()  # nothing was popped when it was closed
            if item.kind in ("word", "constituent") and not item.is_unfinished:
                children[-1] += 1
        return children

    @property
    def num_groups(self) -> int:
        return 4 if self.config.is_binary else 1

    def group(self, state: State) -> int:
        """The least number of words that have still to come, up to three; one more inside of a word."""
        if state.num_open == 0:
            return 0 if len(state.stack) > 1 else 1
        needed = sum(2 - children for children in self._children(state)) - (state.num_open - 1)
        return min(needed, 3)

    def _valid_binary(self, state: State, labels: list[int]) -> list[int]:
        """Two children each, but a sentence of one word has one constituent over it."""
        children = self._children(state)
        if children[-1] == 2:
            return [REDUCE]
        is_one_word = children == [1] and state.stack[-1].kind == "word"
        return [SHIFT] + ([REDUCE] if is_one_word else []) + labels

    def action_log_probs(self, state: State) -> dict[int, Tensor]:
        """log p of every valid action."""
        logits = self.model.action_head.weight @ state.output + self.model.action_head.bias
        valid = self.valid(state)
        return dict(zip(valid, logits[valid] - logits[valid].logsumexp(0), strict=True))

    def word_log_probs(self, state: State) -> Tensor:
        """log p(token | SHIFT): (V,)."""
        return (self.model.word_embedding @ state.output + self.model.word_bias).log_softmax(0)

    def apply(self, state: State, action: int, token: int | None = None) -> State:
        assert action in self.valid(state)
        if action == SHIFT:
            is_unfinished = not self.ends_word[token]
            item = Item("word", self.drop(self.model.word_embedding[token]), (), is_unfinished=is_unfinished)
            return self._push(replace(state, in_word=is_unfinished, num_consecutive=0), state.stack[-1], item)
        if action == REDUCE:
            return self._reduce(state)
        if action == self.finish and self.config.order == "in-order":
            return replace(state, is_finished=True)
        state = replace(state, num_open=state.num_open + 1, num_consecutive=state.num_consecutive + 1)
        label = action - FIRST_LABEL
        item = Item("open", self.drop(self.model.label_embedding[label]), (), label)
        return self._push(state, state.stack[-1], item)

    def _reduce(self, state: State) -> State:
        in_order = self.config.order == "in-order"
        state = replace(state, num_open=state.num_open - 1)
        if not in_order:
            state = replace(state, num_consecutive=0)
            if state.num_open == 0:
                return replace(state, is_finished=True)
        stack = list(state.stack)
        children = []
        if self.config.composition == "none":
            vector = self.drop(self.model.composition.reduce_embedding)
            return self._push(state, stack[-1], Item("constituent", vector, ()))
        while stack[-1].kind != "open":
            children.insert(0, stack.pop())
        opened = stack.pop()
        if in_order:
            children.insert(0, stack.pop())  # the left corner, a constituent or a whole word
            while stack[-1].is_unfinished:
                children.insert(0, stack.pop())
        compose = self._compose_lstm if self.config.composition == "lstm" else self._compose_attention
        vector = compose(opened, [child.vector for child in children], state.output)
        return self._push(replace(state, stack=tuple(stack)), stack[-1], Item("constituent", vector, ()))

    def _push(self, state: State, below: Item, item: Item) -> State:
        states, x = [], item.vector
        for weights, (h, c) in zip(self.model.stack, below.states, strict=True):
            states.append(lstm_step(weights, x, h, c))
            x = self.drop(states[-1][0])
        output = (self.model.output.weight @ x + self.model.output.bias).relu()
        return replace(state, stack=(*state.stack, replace(item, states=tuple(states))), output=output)

    def _compose_lstm(self, opened: Item, children: list[Tensor], output: Tensor) -> Tensor:
        composition = self.model.composition
        forward = run_lstm(composition.forward_lstm, [opened.vector, *children])[-1]
        backward = run_lstm(composition.backward_lstm, [opened.vector, *reversed(children)])[-1]
        return (composition.output.weight @ self.drop(torch.cat([forward, backward])) + composition.output.bias).relu()

    def _compose_attention(self, opened: Item, children: list[Tensor], output: Tensor) -> Tensor:
        composition = self.model.composition
        forward = run_lstm(composition.forward_lstm, children)
        backward = run_lstm(composition.backward_lstm, children[::-1])[::-1]
        states = [torch.cat(pair) for pair in zip(forward, backward, strict=True)]
        query = composition.query.weight @ torch.cat([composition.label_query[opened.label], output])
        weights = torch.stack([h @ query for h in states]).softmax(0)
        m = self.drop(sum(weight * h for weight, h in zip(weights, states, strict=True)))
        t = self.drop(composition.label_vector[opened.label])
        gate = (composition.gate.weight @ torch.cat([t, m]) + composition.gate.bias).sigmoid()
        return (composition.output.weight @ (gate * t + (1 - gate) * m) + composition.output.bias).relu()

    def log_prob(self, actions: list[int], tokens: list[int]) -> tuple[Tensor, Tensor]:
        """log p of a derivation's actions, in the model's own order, and of its words."""
        state, coming = self.initial(), iter(tokens)
        log_p_actions = log_p_words = torch.zeros((), dtype=torch.float64)
        for action in actions:
            log_p_actions = log_p_actions + self.action_log_probs(state)[action]
            token = next(coming) if action == SHIFT else None
            if token is not None:
                log_p_words = log_p_words + self.word_log_probs(state)[token]
            state = self.apply(state, action, token)
        assert state.is_finished
        return log_p_actions, log_p_words


def lstm_step(weights: LSTMWeights, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    gates = weights.weight_input @ x + weights.weight_hidden @ h + weights.bias
    i, f, o, g = gates.view(4, -1)
    c = f.sigmoid() * c + i.sigmoid() * g.tanh()
    return o.sigmoid() * c.tanh(), c


def run_lstm(weights: LSTMWeights, inputs: list[Tensor]) -> list[Tensor]:
    h = c = inputs[0].new_zeros(weights.hidden_size)
    states = []
    for x in inputs:
        h, c = lstm_step(weights, x, h, c)
        states.append(h)
    return states
