"""Pushdown layers straight from their equations: a stack and a tape that are walked, one position, one head at a time.

Shares nothing with the package but the names of parameters and of the config's fields.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from tests.models.layers.plain_attention import gelu, read_one

SHIFT, ITSELF = 0, 1  # the attachment that closes c constituents is ITSELF + c
Span = tuple[int, int]  # first and last place


@dataclass(frozen=True)
class State:
    """Positions read so far (START is 0), the stack, the tape, and the token that has still to attach."""

    stack: tuple[Span, ...] = ()
    built: tuple[Span, ...] = ()  # constituents of two words or more
    tape: tuple[int, ...] = ()  # of each position, constituents that hold it
    keys: tuple[tuple[Tensor, ...], ...] = ()  # of each position, of each layer
    values: tuple[tuple[Tensor, ...], ...] = ()
    outputs: tuple[Any, ...] = ()  # of each position
    attention: tuple[Any, ...] = ()  # of each position, what each head sees, and its weights in every layer
    token: int | None = None
    in_word: bool = False  # the last token that was read, or is to attach, does not end its word
    was_in_word: bool = False  # the one before it
    is_finished: bool = False

    @property
    def num_open(self) -> int:
        return len(self.stack) + (self.token is not None)


class PlainPushdown:
    """The model action by action: SHIFT w, what w attaches to, .., FINISH."""

    def __init__(self, model: Any) -> None:
        self.sizes, self.parameters = model.config, dict(model.named_parameters())
        self.ends_word = model.vocabulary.ends_word
        self.config = SimpleNamespace(order="in-order")  # for the oracle of the search: FINISH ends
        self.finish = 1 + (model.config.max_stack + 2)

    def initial(self) -> State:
        return self._read(State(), self.parameters["start_embedding"])

    def attachments(self, state: State) -> dict[int, float]:
        """The constituents on the stack that the token may attach to, by how many it then closes."""
        after = {closed: len(state.stack) + 1 - closed for closed in range(len(state.stack) + 1)}
        if state.was_in_word:
            del after[0]
        if state.in_word:  # the word goes on
            return {min(after): 0.0}
        return {closed: 0.0 for closed, size in after.items() if size <= self.sizes.max_stack}

    def action_log_probs(self, state: State) -> Mapping[int, Any]:
        if state.token is not None:
            return {ITSELF + closed: score for closed, score in self._attachment_log_probs(state).items()}
        if len(state.stack) != 1 or state.in_word:
            return {SHIFT: torch.zeros(())}
        logit = self.parameters["finish_head.weight"][0] @ state.outputs[-1] + self.parameters["finish_head.bias"][0]
        return {SHIFT: -(1 + logit.exp()).log(), self.finish: -(1 + (-logit).exp()).log()}

    def leads_to_end(self, state: State, action: int) -> bool:
        return action in (ITSELF + len(state.stack), self.finish)

    def _attachment_log_probs(self, state: State) -> dict[int, Tensor]:
        head = self._named("attachment.")
        assert state.token is not None
        vector = self.parameters["word_embedding"][state.token]
        place = len(state.outputs)

        def mlp(name: str, x: Tensor) -> Tensor:
            inner = gelu(head[f"{name}_in.weight"] @ torch.cat([x, vector]) + head[f"{name}_in.bias"])
            return head[f"{name}_out.weight"] @ inner + head[f"{name}_out.bias"]

        g = mlp("query", state.outputs[-1])
        logits = []
        valid = [*self.attachments(state)]
        for closed in valid:
            if closed == 0:
                key = mlp("own", g) + head["distances"][0]
            else:
                j = state.stack[-closed][1]
                depth = min(state.tape[j], self.sizes.max_depth)
                key = head["key.weight"] @ state.outputs[j] + head["depths"][depth]
                key = key + head["distances"][min(place - j, self.sizes.max_distance)]
            logits.append(g @ key / math.sqrt(len(g)))
        return dict(zip(valid, torch.stack(logits).log_softmax(0), strict=True))

    def word_log_probs(self, state: State) -> Tensor:
        logits = self.parameters["word_embedding"] @ state.outputs[-1] + self.parameters["word_bias"]
        return logits.log_softmax(0)

    def apply(self, state: State, action: int, token: int | None = None) -> State:
        if action == self.finish:
            return replace(state, is_finished=True)
        if action == SHIFT:
            assert token is not None
            in_word = not self.ends_word[token]
            return replace(state, token=token, in_word=in_word, was_in_word=state.in_word)
        place = len(state.outputs)
        new, stack, built, tape = (place, place), [*state.stack], [*state.built], [*state.tape, 0]
        for _ in range(action - ITSELF):
            new = stack.pop()[0], place
            built.append(new)
            for position in range(new[0], place + 1):
                tape[position] += 1
        assert state.token is not None
        vector = self.parameters["word_embedding"][state.token]
        after = replace(state, stack=(*stack, new), built=tuple(built), tape=tuple(tape), token=None)
        return self._read(after, vector)

    def _read(self, state: State, x: Tensor) -> State:
        """One more position, layer by layer; the tape has it already, but for START."""
        sizes, tape = self.sizes, state.tape or (0,)
        kinds = [lambda t, s: min(t - s, sizes.max_distance), lambda t, s: min(tape[s], sizes.max_depth)]
        sees = [range(len(tape))] * sizes.num_heads
        found, layers = list[list[Tensor]](), sizes.num_layers
        output, keys, values = read_one(
            self.parameters, x, state.keys, state.values, num_layers=layers, sees=sees, kinds=kinds, found=found
        )
        outputs, attention = (*state.outputs, output), (*state.attention, (sees, found))
        return replace(state, tape=tape, keys=keys, values=values, outputs=outputs, attention=attention)

    def _named(self, start: str) -> dict[str, Tensor]:
        return {n.removeprefix(start): value for n, value in self.parameters.items() if n.startswith(start)}

    def log_probs(self, actions: list[int], tokens: list[int]) -> tuple[Tensor, Tensor, Tensor]:
        """log p of the attachments, of ending or not, and of the tokens."""
        state, coming = self.initial(), iter(tokens)
        attachment = finish = word = torch.zeros((), dtype=torch.float64)
        for action in actions:
            log_prob = self.action_log_probs(state)[action]
            if action in (SHIFT, self.finish):
                finish = finish + log_prob
            else:
                attachment = attachment + log_prob
            token = next(coming) if action == SHIFT else None
            if token is not None:
                word = word + self.word_log_probs(state)[token]
            state = self.apply(state, action, token)
        assert state.is_finished
        return attachment, finish, word
