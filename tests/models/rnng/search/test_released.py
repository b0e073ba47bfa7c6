"""The public code's scoring, against the same search written plainly from its rules."""

from __future__ import annotations

import math

import pytest
import torch

from tests.models.rnng.plain import REDUCE, SHIFT, PlainRNNG, State
from tests.models.rnng.search.test_beam import SENTENCES, run
from tests.models.rnng.worlds import Tokens, build_model
from tests.models.search.oracle import log_sum
from treelm.models.rnng.network import RNNG

Candidate = tuple[float, State, tuple[int, ...]]


class Released:
    """One sentence, with the masks of a batch of one."""

    def __init__(self, model: RNNG, tokens: list[int]) -> None:
        self.plain, self.tokens = PlainRNNG(model), tokens
        self.stack_size = 8 * math.ceil(min(len(tokens) + 20, 100) / 8)
        self.max_actions = max(100, 5 * len(tokens))

    def log_probs(self, state: State, num_read: int, num_actions: int) -> dict[int, float]:
        depth, num_open = len(state.stack) - 1, state.num_open
        valid = []
        if num_open and depth < self.stack_size - 1:
            valid.append(SHIFT)
        if state.stack[-1].kind in ("word", "constituent") and num_open > 1:
            valid.append(REDUCE)
        enough = self.max_actions - num_actions >= len(self.tokens) - num_read + num_open + 3
        config = self.plain.config
        within = num_open < config.max_open and state.num_consecutive < config.max_consecutive
        if within and enough and depth < self.stack_size - 2:
            valid += range(2, 2 + self.plain.num_labels)
        logits = self.plain.model.action_head.weight @ state.output + self.plain.model.action_head.bias
        return dict(zip(valid, (logits[valid] - logits[valid].logsumexp(0)).tolist(), strict=True))

    def token(self, beam: list[Candidate], num_read: int, k: int, k_w: int, k_s: int) -> list[Candidate]:
        token, arrived, num_forced = self.tokens[num_read], list[Candidate](), 0
        while beam and len(arrived) < min(2 * k, k + 5 * k_s) and len(arrived) - num_forced < k:
            candidates = []
            for score, state, actions in beam:
                for action, log_prob in self.log_probs(state, num_read, len(actions)).items():
                    if action == SHIFT:
                        log_prob += float(self.plain.word_log_probs(state)[token])
                    candidates.append((score + log_prob, state, actions, action))
            candidates.sort(key=lambda one: -one[0])
            shifts = [one for one in candidates if one[3] == SHIFT]
            num_inside = sum(one[3] == SHIFT for one in candidates[:k])
            taken = shifts[: max(k_s, num_inside)]
            num_forced += len(taken) - num_inside
            arrived += [one[:3] for one in taken][: min(2 * k, k + 5 * k_s) - len(arrived)]
            beam = [
                (score, self.plain.apply(state, action), (*actions, action))
                for score, state, actions, action in candidates[:k]
                if action != SHIFT
            ]
        arrived.sort(key=lambda one: -one[0])
        return [
            (score, self.plain.apply(state, SHIFT, token), (*actions, SHIFT)) for score, state, actions in arrived[:k_w]
        ]


@torch.no_grad()
def released_beam(model: RNNG, tokens: list[int], *widths: int) -> tuple[list[float], list[tuple[int, ...]]]:
    search, masses = Released(model, tokens), []
    beam: list[Candidate] = [(0.0, search.plain.initial(), ())]
    for num_read in range(len(tokens)):
        beam = search.token(beam, num_read, *widths)
        masses.append(log_sum(score for score, _, _ in beam))
    return masses, [(*actions, *[REDUCE] * state.num_open) for _, state, actions in beam]


@pytest.mark.parametrize("widths", [(2, 2, 1), (10, 4, 1), (30, 10, 3)], ids=str)
def test_masks_scores_and_stopping_are_those_of_the_public_code(widths: tuple[int, int, int]) -> None:
    model = build_model(Tokens(40), 3, seed=5, max_open=100, max_consecutive=8)
    sentences = [*SENTENCES[:4], [token % 40 for token in range(12)]]
    named = dict(zip(("action_beam", "word_beam", "fast_track"), widths, strict=True))
    for tokens, result in zip(sentences, run(model, sentences, method="released", **named), strict=True):
        masses, derivations = released_beam(model, tokens, *widths)
        assert result.log_masses == pytest.approx(masses, abs=1e-9)
        assert [one.actions for one in result.derivations] == derivations
        assert result.log_prob == result.log_masses[-1]
        assert result.log_probs[-1] == pytest.approx(0.0, abs=1e-12)
