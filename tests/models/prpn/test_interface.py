"""The PRPN as a language model: scores, trees, word by word, in sentences and streams, saved and loaded."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.models.prpn.worlds import prpn
from treelm.models.prpn.network import PRPN
from treelm.trees.distances import tree_from_distances

SENTENCES = [list("1234567"), list("20"), list("7"), list("55512034")]


@pytest.mark.parametrize("builder", ["unbiased", "biased"])
def test_trees_are_built_from_the_distances_before_words(builder: Any) -> None:
    network = prpn(num_unfinished=3)  # the tokens 0 to 2 go on
    network.tree_builder = builder
    words = ["3", "0+1+4", "5", "2+6", "7"]
    (distances,) = network.distances([words])
    assert len(distances) == 8
    (tree,) = network.parse([words])
    assert tree == tree_from_distances(words, distances[[0, 1, 4, 5, 7]], builder=builder)


def log_probs(network: PRPN) -> list[list[float]]:
    return [score.log_probs.tolist() for score in network.score(SENTENCES)]


@pytest.mark.parametrize("variant", ["paper", "released"])
def test_hard_gates_are_those_of_an_infinite_temperature(variant: Any) -> None:
    """The same trees, other probabilities; in training the gates stay soft."""
    network, infinite = (prpn(variant=variant, norm="layer", temperature=one) for one in (3.0, 1e12))
    soft, trees = log_probs(network.eval()), network.parse(SENTENCES)
    network.hard_gates = True
    assert log_probs(network) == log_probs(infinite.eval()) != soft
    assert network.parse(SENTENCES) == trees
    network.hard_gates = False
    assert log_probs(network) == soft
    inputs, state = torch.tensor([[1], [2], [3], [4]]), network.init_state(1)
    in_training = [network.train().forward(inputs, state).outputs]
    network.hard_gates = True
    assert torch.equal(network.forward(inputs, state).outputs, in_training[0])
