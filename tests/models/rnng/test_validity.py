"""The rule of validity, in words and by walking."""

import random
from collections.abc import Sequence

import numpy as np
import pytest
import torch

from tests.models.rnng.plain import PlainRNNG, State
from tests.models.rnng.worlds import Tokens, build_model
from treelm.models.rnng.config import RNNGConfig
from treelm.models.search.validity import CONSTITUENT, EMPTY, OPEN, WORD, Configuration, valid_actions

KINDS = {"initial": EMPTY, "word": WORD, "constituent": CONSTITUENT, "open": OPEN}


def configuration(states: Sequence[State]) -> Configuration:
    return Configuration(
        num_open=np.array([state.num_open for state in states]),
        num_consecutive=np.array([state.num_consecutive for state in states]),
        top=np.array([KINDS[state.stack[-1].kind] for state in states]),
        in_word=np.array([state.in_word for state in states]),
        only_child=np.array([is_only_child(state) for state in states]),
    )


def is_only_child(state: State) -> bool:
    """The top is completed, and right behind the innermost open nonterminal."""
    kinds = [item.kind for item in state.stack if not item.is_unfinished]
    return not state.in_word and kinds[-1] in ("word", "constituent") and kinds[-2] == "open"


@pytest.mark.parametrize("rule", ["top-down", "in-order", "binary"])
@pytest.mark.parametrize("num_unfinished", [0, 2])
@torch.no_grad()
def test_the_rule_agrees_with_the_plain_form_on_random_walks(
    rule: str, num_unfinished: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RNNGConfig, "is_binary", rule == "binary")
    order = "in-order" if rule == "in-order" else "top-down"
    model = build_model(Tokens(5, num_unfinished), order=order, max_open=3, max_consecutive=2)
    plain, rng = PlainRNNG(model), random.Random(0)
    states = []
    for _ in range(30):
        state = plain.initial()
        while not state.is_finished and len(states) < 2000:
            states.append(state)
            state = plain.apply(state, rng.choice(plain.valid(state)), rng.randrange(5))
    mask = valid_actions(model.config, configuration(states), 3)
    assert [np.flatnonzero(row).tolist() for row in mask] == [sorted(plain.valid(state)) for state in states]
