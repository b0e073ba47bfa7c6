"""Enumeration and beam search straight from their definitions, on a plain model: nothing is shared or skipped."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch

from treelm.trees.transitions import REDUCE, SHIFT

Words = tuple[int, ...]
State = Any  # it has ``num_open``


class Plain(Protocol):
    """A generative parser, one derivation and one action at a time."""

    config: Any  # it has ``order``
    finish: int

    def initial(self) -> State: ...

    def action_log_probs(self, state: State) -> Mapping[int, Any]: ...

    def word_log_probs(self, state: State) -> Any: ...

    def apply(self, state: State, action: int, token: int | None = None) -> State: ...


def log_sum(values: Iterable[float]) -> float:
    values = list(values)
    highest = max(values, default=-math.inf)
    return highest + math.log(math.fsum(math.exp(v - highest) for v in values)) if highest > -math.inf else -math.inf


@dataclass
class Enumeration:
    """Everything with up to ``length`` tokens."""

    prefixes: dict[Words, list[float]] = field(default_factory=dict)  # log p of derivations up to the last SHIFT
    trees: dict[Words, dict[tuple[int, ...], float]] = field(default_factory=dict)  # by actions
    unfinished: list[float] = field(default_factory=list)  # at the SHIFT after the last token


def successors(plain: Plain, state: State) -> Iterator[tuple[int, float]]:
    for action, log_prob in plain.action_log_probs(state).items():
        yield action, float(log_prob)


def ends(plain: Plain, state: State, action: int) -> bool:
    if plain.config.order == "in-order":
        return action == plain.finish
    return action == REDUCE and state.num_open == 1


@torch.no_grad()
def enumerate_all(plain: Plain, length: int) -> Enumeration:
    found = Enumeration()
    todo = [(plain.initial(), 0.0, Words(), tuple[int, ...]())]
    while todo:
        state, score, words, actions = todo.pop()
        tokens = plain.word_log_probs(state).tolist()
        for action, log_prob in successors(plain, state):
            if action == SHIFT and len(words) == length:
                found.unfinished.append(score + log_prob)
            elif action == SHIFT:
                for token, token_log_prob in enumerate(tokens):
                    longer, total = (*words, token), score + log_prob + token_log_prob
                    found.prefixes.setdefault(longer, []).append(total)
                    todo.append((plain.apply(state, action, token), total, longer, (*actions, action)))
            elif ends(plain, state, action):
                found.trees.setdefault(words, {})[(*actions, action)] = score + log_prob
            else:
                todo.append((plain.apply(state, action), score + log_prob, words, (*actions, action)))
    return found


def leads_to_end(plain: Plain, state: State, action: int) -> bool:
    """Whether the sentence may end after the action, without another SHIFT; a plain form may know better."""
    if plain.config.order == "top-down":
        return action == REDUCE
    rule = getattr(plain, "leads_to_end", None)
    return rule is None or bool(rule(state, action))


def num_groups(plain: Plain) -> int:
    """Groups of analyses that do not crowd each other out; a plain form may have several."""
    return int(getattr(plain, "num_groups", 1))


def group_of(plain: Plain, state: State) -> int:
    return int(plain.group(state)) if num_groups(plain) > 1 else 0  # type: ignore[attr-defined]


Candidate = tuple[float, State, tuple[int, ...]]


@torch.no_grad()
def plain_beam(
    plain: Plain,
    tokens: Iterable[int],
    action_beam: int,
    word_beam: int,
    fast_track: int,
    threshold: float = math.inf,
) -> tuple[list[float], list[Candidate]]:
    """M_i of every token, and the complete analyses, best first."""
    masses: list[float] = []
    beam: list[Candidate] = [(0.0, plain.initial(), ())]
    for token in tokens:
        arrived = search_step(plain, beam, token, action_beam, word_beam, fast_track, threshold)
        masses.append(log_sum(score for score, _, _ in arrived))
        beam = [(score, plain.apply(state, SHIFT, token), (*actions, SHIFT)) for score, state, actions in arrived]
    if plain.config.order == "top-down":  # closing is no choice
        action_beam, threshold = max(action_beam, word_beam), math.inf
    finished = search_step(plain, beam, None, action_beam, word_beam, fast_track, threshold)
    return masses, [(score, state, (*actions, last_action(plain))) for score, state, actions in finished]


def last_action(plain: Plain) -> int:
    return plain.finish if plain.config.order == "in-order" else REDUCE


def floor(arrived: list[Candidate], word_beam: int, threshold: float) -> float:
    """What lies below it will not be kept; without a threshold, to drop it at once changes nothing."""
    if threshold == math.inf:
        return -math.inf
    best = sorted((score for score, _, _ in arrived), reverse=True)[:word_beam]
    lowest = best[-1] if len(best) == word_beam else -math.inf
    return max(lowest, log_sum(best) - threshold)


def search_step(
    plain: Plain,
    beam: list[Candidate],
    token: int | None,
    action_beam: int,
    word_beam: int,
    fast_track: int,
    threshold: float = math.inf,
) -> list[Candidate]:
    """The analyses that are about to shift the token, or to end (None)."""
    arrived: dict[int, list[Candidate]] = {}  # by group
    at_goal = list[float]()  # before the token
    while beam:
        candidates = []
        for score, state, actions in beam:
            for action, log_prob in successors(plain, state):
                is_goal = action == SHIFT if token is not None else ends(plain, state, action)
                if is_goal:
                    at_goal.append(score + log_prob)
                if is_goal and token is not None:
                    log_prob += float(plain.word_log_probs(state)[token])
                if is_goal or not (action == SHIFT or ends(plain, state, action)):
                    candidates.append((score + log_prob, state, actions, action, is_goal))
        if token is None:
            candidates = [one for one in candidates if leads_to_end(plain, one[1], one[3])]
        in_play = log_sum([*at_goal, *(one[0] for one in candidates if not one[4])])
        candidates = [one for one in candidates if one[4] or one[0] > in_play - threshold]
        candidates.sort(key=lambda one: -one[0])
        stays = []
        for group in sorted({group_of(plain, one[1]) for one in candidates}):
            of_group = [one for one in candidates if group_of(plain, one[1]) == group]
            top, goals = of_group[:action_beam], [one for one in of_group if one[4]]
            goals = goals[: max(fast_track, sum(one[4] for one in top))]
            own = arrived.setdefault(group, [])
            own += [one[:3] for one in goals if one[0] > floor(own, word_beam, threshold)]
            stays += [one for one in top if not one[4]]
        beam = []
        for s, state, acts, action, _ in stays:
            groups = range(group_of(plain, state), num_groups(plain))
            if s > min(floor(arrived.get(group, []), word_beam, threshold) for group in groups):
                beam.append((s, plain.apply(state, action), (*acts, action)))
    found = log_sum(score for of_group in arrived.values() for score, _, _ in of_group)
    kept = [
        one
        for of_group in arrived.values()
        for one in sorted((one for one in of_group if one[0] > found - threshold), key=lambda one: -one[0])[:word_beam]
    ]
    return sorted(kept, key=lambda one: -one[0])
