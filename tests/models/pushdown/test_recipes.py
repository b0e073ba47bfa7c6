"""Packaged recipes have the sizes that they say: every parameter counted."""

from __future__ import annotations

import pytest
import torch

from tests.models.rnng.worlds import Tokens
from treelm.models.pushdown.network import Pushdown
from treelm.training.recipe import load_recipe


def expected_of(num_layers: int, size: int, num_tokens: int, num_distances: int, num_depths: int) -> int:
    blocks = num_layers * (12 * size**2 + 13 * size)
    tables = num_layers * (num_distances + num_depths + 3) * size  # of keys, and three biases of queries
    embeddings = num_tokens * (size + 1) + size  # with the bias of the softmax, and START
    attachment = 7 * size**2 + 4 * size + (num_distances + num_depths) * size
    return blocks + tables + embeddings + attachment + 2 * size + size + 1  # the last norm, the end


@pytest.mark.parametrize(
    ("name", "num_tokens", "sizes", "expected"),
    [
        ("pushdown-gum-open", 5541, (4, 256, 5541, 64, 16), 5_149_350),
        ("pushdown-bllip-lg", 50_257, (16, 1024, 50_257, 64, 50), 262_434_898),
    ],
)
def test_parameters_are_as_many_as_counted(
    name: str, num_tokens: int, sizes: tuple[int, int, int, int, int], expected: int
) -> None:
    with torch.device("meta"):
        network = Pushdown(load_recipe(name).model.config, vocabulary=Tokens(num_tokens))
    assert sum(one.numel() for one in network.parameters()) == expected_of(*sizes) == expected
