"""At the size of real models, a sentence has the same scores, byte for byte, in a batch of any size."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.models.rnng.worlds import Tokens
from tests.models.transformer_grammar.worlds import VARIANTS, build_grammar
from treelm.models.search.config import SearchConfig


@pytest.mark.isa
@pytest.mark.parametrize(
    ("variant", "matmul"),
    [("TG", "highest"), ("PLM-mask", "medium"), ("external bottom-up", "highest")],
)
def test_a_sentence_scores_the_same_bytes_in_batches_of_1_and_9(variant: str, matmul: str) -> None:
    sizes = {"size": 256, "num_layers": 2, "num_heads": 4, "max_distance": 30, "composer_size": 64}
    model = build_grammar(Tokens(5541), 27, seed=3, dtype=torch.float32, **{**VARIANTS[variant], **sizes})
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
