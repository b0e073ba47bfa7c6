"""The shift-reduce parser straight from its equations, one sentence and one action at a time, with Python lists."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from treelm.models.shift_reduce.network import ShiftReduce


@dataclass(frozen=True)
class Item:
    """What stands on a stack, with the LSTM's state when it is on top: (hidden, cell) of each layer."""

    start: int
    vector: Tensor
    state: list[tuple[Tensor, Tensor]]


@dataclass
class Outcome:
    parse: Tensor  # -log p of the oracle's actions
    num_decisions: int
    word: Tensor  # -log p of the words and the end
    actions: list[bool] = field(default_factory=list)  # REDUCE or not, wherever there was a choice


def push(network: ShiftReduce, stack: list[Item], start: int, vector: Tensor) -> list[Item]:
    inputs, state = vector, []
    for layer, weights in enumerate(network.stack):
        size = len(vector)
        hidden, cell = stack[-1].state[layer] if stack else (vector.new_zeros(size), vector.new_zeros(size))
        gates = weights.weight_input @ inputs + weights.weight_hidden @ hidden + weights.bias
        i, f, o, g = gates.split(size)
        cell = f.sigmoid() * cell + i.sigmoid() * g.tanh()
        inputs = o.sigmoid() * cell.tanh()
        state.append((inputs, cell))
    return [*stack, Item(start, vector, state)]


def vector_of(network: ShiftReduce, token: int) -> Tensor:
    x = network.embedding[token]
    norm = network.input_norm
    return (x - x.mean()) / (x.var(unbiased=False) + norm.eps).sqrt() * norm.weight + norm.bias


def read(network: ShiftReduce, tokens: list[int], siblings: list[int], act: Callable[[float, bool], bool]) -> Outcome:
    """``siblings`` by position, the boundary first; ``act`` gets the probability of REDUCE and what is best."""
    boundary = len(network.vocabulary)
    zero = network.embedding.new_zeros(())
    outcome = Outcome(zero, 0, zero)
    stack: list[Item] = []
    for position, token in enumerate([boundary, *tokens]):
        ahead = vector_of(network, token)
        while len(stack) >= 2:
            pair = torch.cat([stack[-1].state[-1][0], ahead])
            hidden = (network.action_hidden.weight @ pair + network.action_hidden.bias).relu()
            p = (network.action_score.weight[0] @ hidden + network.action_score.bias[0]).sigmoid()
            is_best = stack[-1].start > siblings[position]
            outcome.parse = outcome.parse - (p if is_best else 1 - p).log()
            outcome.num_decisions += 1
            outcome.actions.append(act(p.item(), is_best))
            if not outcome.actions[-1]:
                break
            *stack, left, right = stack
            joined = torch.cat([left.vector, right.vector])
            composed = (network.composition.weight @ joined + network.composition.bias).tanh()
            stack = push(network, stack, left.start, composed)
        stack = push(network, stack, position, ahead)
        if network.output_bias is not None:
            log_p = (network.embedding @ stack[-1].state[-1][0] + network.output_bias).log_softmax(0)
            following = [*tokens, boundary][position]
            outcome.word = outcome.word - log_p[following]
    assert math.isfinite(outcome.parse.item())
    return outcome


def spans(actions: list[bool], num_positions: int) -> set[tuple[int, int]]:
    """Constituents, as first and last position, of the choices that were made; at the end everything is reduced."""
    choices = iter(actions)
    stack: list[tuple[int, int]] = []
    found: set[tuple[int, int]] = set()

    def reduce() -> None:
        right, left = stack.pop(), stack.pop()
        stack.append((left[0], right[1]))
        found.add(stack[-1])

    for position in range(num_positions):
        while len(stack) >= 2 and next(choices):
            reduce()
        stack.append((position, position))
    while len(stack) >= 2:
        reduce()
    return found
