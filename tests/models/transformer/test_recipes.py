"""Packaged recipes have the sizes that they say: every parameter counted."""

from __future__ import annotations

import pytest
import torch

from tests.models.rnng.worlds import Tokens
from treelm.models.transformer.network import Transformer
from treelm.training.recipe import load_recipe

GUM_OPEN = 5541  # words of its vocabulary
GPT2_SMALL = 124_439_808  # as its authors' code counts
BLOCKS = {"transformer-gum-open": 3_159_040, "treereg-wt103": 50_438_144}  # N (12 D^2 + 13 D)


@pytest.mark.parametrize(
    ("name", "num_tokens", "expected"),
    [
        # blocks, embeddings with their bias, the last norm; tables of 64 distances and two biases a layer
        ("transformer-gum-open", GUM_OPEN, BLOCKS["transformer-gum-open"] + 5542 * 257 + 512 + 4 * 66 * 256),
        ("transformer-gpt2-small", 50_256, GPT2_SMALL + 50_257),
        ("treereg-wt103", 32_000, BLOCKS["treereg-wt103"] + 32_001 * 513 + 1024 + 16 * 66 * 512),
    ],
)
def test_parameters_are_as_many_as_counted(name: str, num_tokens: int, expected: int) -> None:
    config = load_recipe(name).model.config
    with torch.device("meta"):
        network = Transformer(config, vocabulary=Tokens(num_tokens))
    assert sum(one.numel() for one in network.parameters()) == expected
