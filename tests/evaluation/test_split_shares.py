"""Shares of left and right splits."""

from __future__ import annotations

import pytest
import torch

from tests.models.palm.worlds import TINY, palm
from treelm.errors import InputError
from treelm.evaluation.split_shares import random_shares, split_shares, untrained
from treelm.models.lstm.network import LSTMConfig
from treelm.models.palm.config import PaLMConfig
from treelm.training.recipe import ModelConfig
from treelm.trees.tree import Tree


def test_left_and_right_splits() -> None:
    trees = [
        "(X a (X b (X c d)))",  # right, right, two words
        "(X (X a b) c)",  # left, two words
        "(X (X a b) (X c d))",  # neither, two words, two words
        "(X a)",
    ]
    shares = split_shares(map(Tree.parse, trees))
    assert (shares.num_left, shares.num_right, shares.num_pairs, shares.num_splits) == (1, 2, 4, 8)
    assert shares.percentages("all") == (12.5, 25)
    assert shares.percentages("longer") == (25, 50)
    assert split_shares([Tree.parse("(X a)")]).percentages("longer") == (0, 0)


def test_trees_that_are_not_binary_are_an_error() -> None:
    with pytest.raises(ValueError, match="3 parts"):
        split_shares([Tree.parse("(X a b c)")])


def test_shares_of_random_networks_differ_from_seed_to_seed() -> None:
    shares = list(random_shares(palm, [list("1234567"), list("55512034")], num_seeds=4))
    assert len({one.percentages("all")[0] for one in shares}) > 1
    right = list(random_shares(lambda _: palm(attention="right"), [list("123")], num_seeds=2))
    assert [one.percentages("all")[1] for one in right] == [50, 50]
    assert [one.percentages("longer")[1] for one in right] == [100, 100]


def test_untrained_model_from_seed() -> None:
    build = untrained(ModelConfig(system="palm", config=PaLMConfig(**TINY)), [["b", "a"], ["c", "a"]])
    before = torch.random.get_rng_state()
    first, again, other = build(1), build(1), build(2)
    assert torch.equal(torch.random.get_rng_state(), before)
    assert torch.equal(first.decoder_weight, again.decoder_weight)
    assert not torch.equal(first.decoder_weight, other.decoder_weight)
    assert first.parse([["a", "b", "c"]])[0].words() == ["a", "b", "c"]


@pytest.mark.parametrize(
    "model",
    [
        ModelConfig(system="lstm", config=LSTMConfig(embedding_size=2, hidden_size=2)),
        ModelConfig(system="palm", config=PaLMConfig(**TINY, attention="given")),
    ],
    ids=["no trees", "given trees"],
)
def test_system_without_binary_trees_is_an_error(model: ModelConfig) -> None:
    with pytest.raises(InputError, match=f"this {model.system} has no binary trees of its own"):
        untrained(model, [["a"]])(0)
