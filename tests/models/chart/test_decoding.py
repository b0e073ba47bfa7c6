"""Probabilities of trees and of their constituents beside all trees of short sentences, and the tree that is chosen."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.models.chart.plain import log_masses, spans_that_nest
from treelm.models.chart.network import decode, span_probabilities, tree_losses
from treelm.models.chart.plan import gold_spans
from treelm.models.layers.span_scores import spans_of


def draw(num_words: int, num_chains: int, *, seed: int = 1, num_sentences: int = 1) -> Tensor:
    """Scores (B, n + 1, n + 1, chains)."""
    generator = torch.Generator().manual_seed(seed)
    shape = (num_sentences, num_words + 1, num_words + 1, num_chains)
    return torch.randn(shape, dtype=torch.float64, generator=generator)


def as_spans(scores: Tensor) -> Tensor:
    starts, ends = spans_of(scores.shape[1] - 1)
    return scores[:, starts, ends]


def test_the_probabilities_of_all_labelled_trees_of_four_words_sum_to_one() -> None:
    scores = draw(4, 2)
    masses = log_masses(scores[0])
    assert len(masses) == 5022
    gold = np.full((len(masses), 5, 5), -1, dtype=np.int64)
    for row, tree in enumerate(masses):
        for i, j, label in tree:
            gold[row, i, j] = label
    found = -tree_losses(as_spans(scores).expand(len(masses), -1, -1), gold_spans(gold), 4)
    expected = torch.stack(list(masses.values())).log_softmax(0)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-10)
    assert found.exp().sum().item() == pytest.approx(1, abs=1e-9)


@pytest.mark.parametrize("num_words", [1, 2, 4])
def test_labelled_marginals_equal_enumeration(num_words: int) -> None:
    scores = draw(num_words, 2, seed=3)
    masses = log_masses(scores[0])
    probabilities = torch.stack(list(masses.values())).softmax(0).tolist()
    found = span_probabilities(as_spans(scores), num_words)
    starts, ends = spans_of(num_words)
    expected_constituents = 0.0
    for place, (i, j) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
        by_label = [
            sum(p for tree, p in zip(masses, probabilities, strict=True) if (i, j, label) in tree) for label in (0, 1)
        ]
        expected_constituents += sum(by_label)
        assert found.best[0, place].item() == pytest.approx(max(by_label), abs=1e-10)
        assert by_label[found.label[0, place]] == max(by_label)
    assert found.expected[0].item() == pytest.approx(expected_constituents, abs=1e-10)


@pytest.mark.parametrize("threshold", [0.0, 0.2, 0.4, 0.5, 0.7])
def test_the_chosen_tree_has_the_highest_expected_gain_of_all(threshold: float) -> None:
    found = span_probabilities(as_spans(1.5 * draw(6, 2, num_sentences=5, seed=2)), 6)
    chosen = decode(found, 6, threshold)
    starts, ends = spans_of(6)
    place = {(int(i), int(j)): k for k, (i, j) in enumerate(zip(starts, ends, strict=True))}
    for row in range(5):
        gains = (found.best[row] - threshold).tolist()
        values = [sum(gains[place[span]] for span in tree) for tree in spans_that_nest(6)]
        own = [k for k in range(len(gains)) if chosen[row, k]]
        assert 0 in own
        assert sum(gains[k] for k in own) == pytest.approx(max(values), abs=1e-12)
        if threshold == 0.5:
            assert own == [k for k in range(len(gains)) if gains[k] > 0 or k == 0]
