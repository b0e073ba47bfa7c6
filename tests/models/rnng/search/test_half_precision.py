"""Search with the network in half precision."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from tests.models.rnng.search.test_beam import TINY
from tests.models.rnng.worlds import Tokens, build_model
from treelm.errors import InputError
from treelm.models.rnng.network import RNNG
from treelm.models.search.config import SearchConfig

SENTENCES = [["0", "7", "2"], ["3"], ["1", "1", "30", "9", "4", "12"]]
BITS = {"fp16": (torch.float16, 11), "bf16": (torch.bfloat16, 8)}
VARIANTS: list[dict[str, Any]] = [{}, {"composition": "attention"}, {"composition": "none"}, {"order": "in-order"}]


def model_of(variant: dict[str, Any], precision: Any = "full", **settings: Any) -> RNNG:
    sizes = {"embedding_size": 32, "hidden_size": 32, "max_open": 5, "max_consecutive": 3}
    model = build_model(Tokens(40), 4, seed=6, dtype=torch.float32, **sizes, **variant)
    # of 20, rounding to half precision may tip which of two analyses is dropped, and half of the mass with it
    model.search = SearchConfig(action_beam=200, precision=precision, **settings)
    return model


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
@pytest.mark.parametrize("precision", BITS)
def test_scores_are_those_of_full_precision_up_to_its_rounding(variant: dict[str, Any], precision: str) -> None:
    dtype, bits = BITS[precision]
    model = model_of(variant, precision)
    machine: Any = model._checked().machine()
    states = machine.start(2).outputs
    assert {states.dtype, machine.weights.tokens.dtype, machine.weights.vectors.weight.dtype} == {dtype}
    full = np.concatenate([one.log_probs for one in model_of(variant).score(SENTENCES)])
    found = model.score(SENTENCES)
    differences = abs(np.concatenate([one.log_probs for one in found]) - full)
    assert 0 < differences.max() < 20 * 2.0**-bits * abs(full).max()
    assert not any(one.is_lower_bound for one in found)
    assert all(parameter.dtype == torch.float32 for parameter in model.parameters())


@pytest.mark.isa
def test_half_precision_is_batch_invariant_too() -> None:
    model = model_of({}, "fp16")
    together = model.score(SENTENCES)
    for words, one in zip(SENTENCES, together, strict=True):
        assert model.score([words])[0].log_probs.tolist() == one.log_probs.tolist()


def test_a_weight_beyond_half_precision_is_named() -> None:
    model = build_model(Tokens(3), 2, seed=1, **TINY)
    with torch.no_grad():
        model.word_bias[0] = 1e5
    model.search = SearchConfig(precision="fp16")
    with pytest.raises(InputError, match=r"weight 'word_bias' is too large for fp16; search with bf16"):
        model.score(SENTENCES[1:2])
