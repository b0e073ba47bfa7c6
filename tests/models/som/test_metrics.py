"""SOM's own metrics, and its trees, on trees that can be counted by hand."""

from __future__ import annotations

import math

import pytest
import torch

from tests.corpora.helpers import sentence
from tests.models.som import plain, worlds


@pytest.mark.parametrize("oracle", ["dynamic", "left-branching"])
def test_reading_along_gold_trees_recovers_all_of_them(oracle: str) -> None:
    network, trees = worlds.som(oracle=oracle), [[0, [1, [2, 3]]], [[0, 1], 2]]
    reading = network.read(plain.batch_of(trees), gold=True)
    for row, number in enumerate(reading.layout.sentences):
        decisions = reading.decisions[reading.layout.rows == row].tolist()
        found = plain.without_boundary(plain.decode(decisions, network.config.num_slots))
        assert found == plain.binarised(trees[number])


def test_own_metrics_are_those_of_the_greedy_reading_and_of_the_gold_trees() -> None:
    network = worlds.som().eval()
    trees = [*map(sentence, ("(S 1 (X 2 (X 3 4)))", "(S (X 5 6) 7)", "(S 2)"))]
    batch = plain.batch_of([[0, [1, [2, 3]]], [[0, 1], 2], 0], tokens=[[1, 2, 3, 4], [5, 6, 7], [2]])
    with torch.no_grad():
        reading, along = network.read(batch), network.read(batch, gold=True)
        found = network.own_metrics(trees)
        log_probs = network.token_log_probs(along)
    assert found["p_accuracy"] == (reading.log_p.argmax(1).numpy() == reading.labels).mean()
    assert found["perplexity_along_gold_trees"] == pytest.approx(math.exp(-log_probs.mean()))
    accuracies = {"p_accuracy", "p_accuracy_unforced", "p_prediction_accuracy", "p_prediction_accuracy_unforced"}
    right = along.log_p.argmax(1).numpy() == along.labels
    assert found["p_accuracy_along_gold_trees"] == right.mean()
    along_gold = {
        "perplexity_along_gold_trees",
        "p_accuracy_along_gold_trees",
        "p_prediction_accuracy_along_gold_trees",
    }
    assert set(found) == accuracies | along_gold
