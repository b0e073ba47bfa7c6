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
        for action, log_prob in successors(plain, state):
            if action == SHIFT and len(words) == length:
                found.unfinished.append(score + log_prob)
            elif action == SHIFT:
                for token, token_log_prob in enumerate(plain.word_log_probs(state).tolist()):
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


@dataclass
class Pruned:
    """Scores of what the search for one token has pruned."""

    others: list[float] = field(default_factory=list)  # that were neither SHIFTs nor ends
    goals: list[float] = field(default_factory=list)  # without the token
    words: list[float] = field(default_factory=list)  # by the word beam, with the token

    def bits(self, before: float, after: float, earlier: list[float]) -> tuple[float, float]:
        """``beam_loss_bits`` and ``beam_bound_bits``, from the masses before and after and what was pruned before."""
        loss = math.log1p(math.exp(log_sum(self.words) - after)) - math.log1p(-math.exp(log_sum(self.others) - before))
        lost = log_sum([*earlier, *self.others, *self.goals, *self.words])
        return loss / math.log(2), math.log1p(math.exp(lost - after)) / math.log(2)


@torch.no_grad()
def plain_beam(
    plain: Plain,
    tokens: Iterable[int],
    action_beam: int,
    word_beam: int,
    fast_track: int,
    threshold: float = math.inf,
    bits: list[tuple[float, float]] | None = None,
) -> tuple[list[float], list[Candidate]]:
    """M_i of every token, and the complete analyses, best first.

    To ``bits`` are added what each token has lost and the bound of what all have lost. They are those of a search with
    a threshold: without one, nothing is pruned here for lying below the floor.
    """
    masses: list[float] = []
    earlier: list[float] = []
    beam: list[Candidate] = [(0.0, plain.initial(), ())]
    for token in tokens:
        pruned, before = Pruned(), log_sum(score for score, _, _ in beam)
        arrived = search_step(plain, beam, token, action_beam, word_beam, fast_track, threshold, pruned)
        masses.append(log_sum(score for score, _, _ in arrived))
        if bits is not None:
            bits.append(pruned.bits(before, masses[-1], earlier))
        earlier += [*pruned.others, *pruned.goals, *pruned.words]
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
    pruned: Pruned | None = None,
) -> list[Candidate]:
    """The analyses that are about to shift the token, or to end (None); adds all others to ``pruned``."""
    pruned = pruned or Pruned()
    arrived: dict[int, list[Candidate]] = {}  # by group
    at_goal = list[float]()  # before the token
    while beam:
        candidates = []
        for score, state, actions in beam:
            for action, log_prob in successors(plain, state):
                is_goal = action == SHIFT if token is not None else ends(plain, state, action)
                before = score + log_prob
                if is_goal:
                    at_goal.append(before)
                if is_goal and token is not None:
                    log_prob += float(plain.word_log_probs(state)[token])
                if is_goal or not (action == SHIFT or ends(plain, state, action)):
                    candidates.append((score + log_prob, state, actions, action, is_goal, before))
        if token is None:
            candidates = [one for one in candidates if leads_to_end(plain, one[1], one[3])]
        in_play = log_sum([*at_goal, *(one[0] for one in candidates if not one[4])])
        before_pruning = candidates
        candidates = [one for one in candidates if one[4] or one[0] > in_play - threshold]
        candidates.sort(key=lambda one: -one[0])
        stays, survivors = [], []
        for group in sorted({group_of(plain, one[1]) for one in candidates}):
            of_group = [one for one in candidates if group_of(plain, one[1]) == group]
            top, goals = of_group[:action_beam], [one for one in of_group if one[4]]
            goals = goals[: max(fast_track, sum(one[4] for one in top))]
            own = arrived.setdefault(group, [])
            goals = [one for one in goals if one[0] > floor(own, word_beam, threshold)]
            own += [one[:3] for one in goals]
            survivors += goals
            stays += [one for one in top if not one[4]]
        beam = []
        for one in stays:
            s, state, acts, action, _, _ = one
            groups = range(group_of(plain, state), num_groups(plain))
            if s > min(floor(arrived.get(group, []), word_beam, threshold) for group in groups):
                beam.append((s, plain.apply(state, action), (*acts, action)))
                survivors.append(one)
        surviving = {id(one) for one in survivors}
        for one in before_pruning:
            if id(one) not in surviving:
                (pruned.goals if one[4] else pruned.others).append(one[5])
    found = log_sum(score for of_group in arrived.values() for score, _, _ in of_group)
    kept = []
    for of_group in arrived.values():
        of_group.sort(key=lambda one: -one[0])
        high = [one[0] > found - threshold for one in of_group[:word_beam]].count(True)
        kept += of_group[:high]
        pruned.words += [one[0] for one in of_group[high:]]
    return sorted(kept, key=lambda one: -one[0])
