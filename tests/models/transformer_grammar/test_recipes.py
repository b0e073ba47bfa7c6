"""Packaged recipes have the sizes that they say: every parameter counted."""

from __future__ import annotations

import pytest
import torch

from tests.models.rnng.worlds import Tokens
from treelm.models.transformer_grammar.network import TransformerGrammar
from treelm.training.recipe import load_recipe

GUM_OPEN = 5541, 27  # words of its vocabulary, labels
BLLIP_LG = 32_000, 26


@pytest.mark.parametrize(
    ("name", "tokens_and_labels", "expected"),
    [
        # blocks N (12 D^2 + 13 D), tables of distances and two biases a layer, embeddings of words with their bias,
        # START, brackets, the last norm, the head of actions
        ("tg-gum-open", GUM_OPEN, 3_159_040 + 4 * 34 * 256 + 5541 * 257 + 55 * 256 + 512 + 29 * 257),
        ("plm-mask-gum-open", GUM_OPEN, 3_159_040 + 4 * 66 * 256 + 5541 * 257 + 29 * 256 + 512 + 29 * 257),
        ("tg-bllip-lg", BLLIP_LG, 201_539_584 + 16 * 66 * 1024 + 32_000 * 1025 + 53 * 1024 + 2048 + 28 * 1025),
    ],
)
def test_parameters_are_as_many_as_counted(name: str, tokens_and_labels: tuple[int, int], expected: int) -> None:
    num_tokens, num_labels = tokens_and_labels
    config = load_recipe(name).model.config
    labels = [f"X{label}" for label in range(num_labels)]
    with torch.device("meta"):
        network = TransformerGrammar(config, vocabulary=Tokens(num_tokens), labels=labels)
    assert sum(one.numel() for one in network.parameters()) == expected
