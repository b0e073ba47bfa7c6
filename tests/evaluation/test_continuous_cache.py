"""The continuous cache against its definition, word by word."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from treelm.evaluation.streams import ContinuousCache


def naive(
    outputs: np.ndarray, targets: np.ndarray, log_probs: np.ndarray, *, weight: float, theta: float, window: int
) -> tuple[np.ndarray, np.ndarray]:
    """log p of each target of one row, and the sum of each step's distribution over all tokens; log_probs (T, V)."""
    found, sums = [], []
    for t in range(len(outputs)):
        past = range(max(0, t - window), t)
        distribution = np.exp(log_probs[t])
        if past:
            scores = np.array([np.exp(theta * outputs[t] @ outputs[j]) for j in past])
            cached = np.zeros_like(distribution)
            for score, j in zip(scores / scores.sum(), past, strict=True):
                cached[targets[j]] += score
            distribution = weight * cached + (1 - weight) * distribution
        found.append(np.log(distribution[targets[t]]))
        sums.append(distribution.sum())
    return np.array(found), np.array(sums)


@pytest.mark.parametrize("window", [1, 3, 7, 100])
@pytest.mark.parametrize("cuts", [[20], [1, 19], [7, 6, 7], [3] * 6 + [2]])
def test_segments_give_what_the_definition_gives(window: int, cuts: list[int]) -> None:
    random = np.random.default_rng(0)
    outputs, targets = random.normal(size=(20, 3, 4)), random.integers(0, 5, (20, 3))
    logits = random.normal(size=(20, 3, 5))
    log_probs = logits - np.log(np.exp(logits).sum(2, keepdims=True))
    config: dict[str, Any] = {"weight": 0.3, "theta": 0.7, "window": window}
    of_targets = np.take_along_axis(log_probs, targets[:, :, None], 2)[:, :, 0]
    cache, parts, start = ContinuousCache(**config), [], 0
    for size in cuts:
        chosen = slice(start, start + size)
        parts.append(cache.log_probs(*(torch.from_numpy(one[chosen]) for one in (outputs, targets, of_targets))))
        start += size
    found = torch.cat(parts).numpy()
    for row in range(3):
        expected, sums = naive(outputs[:, row], targets[:, row], log_probs[:, row], **config)
        np.testing.assert_allclose(found[:, row], expected, atol=1e-12)
        np.testing.assert_allclose(sums, 1)


def test_a_cache_of_equal_weights_counts_the_recent_past() -> None:
    cache = ContinuousCache(weight=0.5, theta=0.0, window=10)
    targets = torch.tensor([[0], [0], [1], [0]])
    log_probs = torch.full((4, 1), 0.25).double().log()
    found = cache.log_probs(torch.randn(4, 1, 2), targets, log_probs).exp()[:, 0]
    torch.testing.assert_close(found, torch.tensor([0.25, 0.625, 0.125, 0.125 + 1 / 3]).double())
