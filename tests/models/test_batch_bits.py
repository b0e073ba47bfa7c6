"""At the size of real models, a sentence has the same scores, byte for byte, in a batch of any size."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.models.pushdown.worlds import build_pushdown
from tests.models.rnng.worlds import Tokens
from tests.models.transformer_grammar.worlds import VARIANTS, build_grammar
from treelm.models.search.config import SearchConfig
from treelm.models.search.model import GenerativeParser

SIZES = {"size": 256, "num_layers": 2, "num_heads": 4}


def build(variant: str) -> GenerativeParser:
    tokens = Tokens(5541)
    if variant == "pushdown":
        return build_pushdown(tokens, seed=3, dtype=torch.float32, max_distance=63, max_depth=15, **SIZES)
    sizes = {**VARIANTS[variant], **SIZES, "max_distance": 30, "composer_size": 64}
    return build_grammar(tokens, 27, seed=3, dtype=torch.float32, **sizes)


@pytest.mark.isa
@pytest.mark.parametrize(
    ("variant", "matmul"),
    [
        ("TG", "highest"),
        ("PLM-mask", "medium"),
        ("external bottom-up", "highest"),
        ("pushdown", "highest"),
        ("pushdown", "medium"),
    ],
)
def test_a_sentence_scores_the_same_bytes_in_batches_of_1_and_9(variant: str, matmul: str) -> None:
    model = build(variant)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(0.2)  # 256 units together are enough
    rng = np.random.default_rng(5)
    sentences = [[str(word) for word in rng.integers(0, 5541, length)] for length in (2, 9, 3, 3, 2, 4, 2, 3, 12)]
    scores = []
    for batch_size, count in ((9, 9), (1, 4)):
        model.search = SearchConfig(action_beam=8, word_beam=3, batch_size=batch_size, matmul=matmul)  # type: ignore[arg-type]
        scores.append([score.log_probs.tobytes() for score in model.score(sentences[:count])])
    assert scores[0][:4] == scores[1]


def test_taller_stacks_beside_it_change_no_bit() -> None:
    """A softmax over few constituents adds them up as it does among as many as there may be."""
    model = build_pushdown(Tokens(9), size=8)
    found = []
    for heights in ([5], [5, 40]):
        machine, ones = model.searchable().machine(), np.ones(len(heights), np.int64)
        analyses, log_probs = machine.start(len(heights)), []
        for place in range(40):
            analyses = machine.shift(analyses, place % 9 * ones)
            log_probs.append(analyses.log_probs[0].tobytes())
            closes = np.array([place >= height for height in heights], np.int64)  # then the stack stays as it is
            analyses = machine.apply(analyses, np.arange(len(heights)), 1 + closes, np.zeros(len(heights)))
        found.append(log_probs)
    assert found[0] == found[1]
