"""How widely Transformer Grammars look back, against attention that is recomputed one position, one head at a time."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch

from tests.models.layers.plain_attention import columns_of
from tests.models.rnng.worlds import Tokens
from tests.models.search.oracle import Candidate, log_sum, search_step
from tests.models.transformer_grammar.plain_bottom_up import plain_of
from tests.models.transformer_grammar.worlds import VARIANTS, build_grammar
from treelm.models.search.config import SearchConfig
from treelm.models.transformer_grammar.network import TransformerGrammar
from treelm.trees.transitions import SHIFT

TINY = {"max_open": 3, "max_consecutive": 2, "max_stack": 3, "max_unary": 1}
BEAM = {"action_beam": 6, "word_beam": 4, "fast_track": 1}
SENTENCES = [["3", "1+4", "8"], ["2"], ["1+0+5", "7", "3"]]


@torch.no_grad()
def plain_entropies(model: TransformerGrammar, tokens: list[int]) -> np.ndarray:
    """(1 + tokens, H, 2): START, then means over the beam of the definition by what each analysis has of the mass."""
    plain = plain_of(model)
    beam: list[Candidate] = [(0.0, plain.initial(), ())]
    found = [np.array(plain.looks_back(beam[0][1]))]
    for token in tokens:
        arrived = search_step(plain, beam, token, **BEAM)
        beam = [(score, plain.apply(state, SHIFT, token), actions) for score, state, actions in arrived]
        mass = log_sum(score for score, _, _ in beam)
        found.append(sum(np.exp(score - mass) * np.array(plain.looks_back(state)) for score, state, _ in beam))
    return np.array(found)


@pytest.mark.parametrize("variant", [*VARIANTS.values()][::4], ids=[*VARIANTS][::4])
def test_the_columns_are_those_of_attention_recomputed_step_by_step(variant: dict[str, Any]) -> None:
    model = build_grammar(Tokens(9, 2), 2, seed=5, **TINY, **variant)
    model.search = SearchConfig(**BEAM)
    for words, score in zip(SENTENCES, model.score(SENTENCES), strict=True):
        pieces = [[int(token) for token in word.split("+")] for word in words]
        ends = np.cumsum([1, *map(len, pieces)]).tolist()
        places = [range(start, stop) for start, stop in pairwise(ends)]
        for name, expected in columns_of(
            plain_entropies(model, [token for own in pieces for token in own]), places
        ).items():
            np.testing.assert_allclose(score.columns[name], expected, rtol=0, atol=1e-9)
    assert np.ptp(score.columns["nae"]) > 0.1
