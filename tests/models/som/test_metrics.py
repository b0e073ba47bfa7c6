"""SOM's figures: accuracy, binarised bracketing and depth on trees that can be counted by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.models.som import plain, worlds
from tests.models.som.metrics import evaluate_som
from treelm.models.som.cells import Accuracy


def test_reading_along_gold_trees_recovers_all_of_them_and_counts_their_depth() -> None:
    network = worlds.som(num_slots=15)
    batch = plain.batch_of([[0, [1, [2, 3]]], [[0, 1], 2]])
    figures = evaluate_som(network, [batch], gold_trees=True)
    assert figures.binarised_f1 == 100.0
    assert figures.gold == 3 + 2
    assert (figures.depth_sum, figures.depth_max) == (3 + 2, 3)
    assert figures.num_too_deep == 0
    assert figures.num_tokens == 7


def test_words_deeper_than_the_memory_are_counted() -> None:
    network = worlds.som(num_slots=2)
    batch = plain.batch_of([[0, [1, [2, [3, [4, 5]]]]]])
    figures = evaluate_som(network, [batch], gold_trees=True)
    assert figures.num_too_deep == 3
    assert figures.binarised_f1 < 100.0


def test_perplexity_is_that_of_the_scores() -> None:
    network = worlds.som()
    batch = worlds.batch(network)
    bounds = zip(batch.token_offsets[:-1], batch.token_offsets[1:], strict=True)
    scores = network.score([[str(token) for token in batch.tokens[a:b]] for a, b in bounds])
    log_probs = np.concatenate([score.log_probs for score in scores])
    figures = evaluate_som(network, [batch])
    assert figures.perplexity == pytest.approx(np.exp(-log_probs.mean()), rel=1e-8)
    assert figures.attachment.forced == figures.prediction.forced == len(batch)
    assert figures.to_json()["sentences"] == 5


def test_forced_positions_count_only_where_they_are_named() -> None:
    accuracy = Accuracy()
    log_probs = torch.tensor([[-torch.inf, 0.0], [-0.5, -1.0], [-1.0, -0.5]])
    accuracy.add(log_probs, np.array([1, 1, 1]))
    assert accuracy.all_positions == pytest.approx(2 / 3)
    assert accuracy.unforced == pytest.approx(1 / 2)


def test_a_left_branching_model_is_judged_against_the_gold_trees() -> None:
    network = worlds.som(oracle="left-branching")
    figures = evaluate_som(network, [plain.batch_of([[0, [1, [2, 3]]]])], gold_trees=True)
    assert figures.binarised_f1 == 100.0


def test_a_bare_parser_has_no_perplexity_and_no_accuracy_of_a_network_it_lacks() -> None:
    network = worlds.som(word_loss=False, prediction_network=False)
    found = evaluate_som(network, [worlds.batch(network)]).to_json()
    assert "perplexity_with_end" not in found
    assert "p_prediction_accuracy_unforced" not in found
    assert found["p_accuracy"] >= 0
