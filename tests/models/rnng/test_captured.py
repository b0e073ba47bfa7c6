"""One graph for the levels of many batches: what it computes for other trees, how few starts it leaves.

That every variant equals the plain form is tested in ``test_network``.
"""

from __future__ import annotations

import pytest
import torch

from tests.devices.calls import num_calls
from tests.models.gradients import gradients
from tests.models.rnng.test_network import random_trees
from tests.models.rnng.worlds import Tokens, as_batch, build_model, computed


@pytest.mark.parametrize("composition", ["lstm", "none"])
@pytest.mark.parametrize("dropout", [0.0, 0.4])
def test_a_replay_computes_the_trees_words_and_masks_that_it_is_given(composition: str, dropout: float) -> None:
    vocabulary = Tokens(9)
    model = build_model(vocabulary, num_layers=2, composition=composition, dropout=dropout)
    batches = [as_batch(random_trees(vocabulary, 9, seed=seed)[4:], vocabulary) for seed in range(6)]
    found = []
    for form in ("captured", "shared products"):
        with computed(model, form):
            for number, batch in enumerate(batches):
                torch.manual_seed(number)
                loss = model.losses(batch).total
                found.append({"loss": loss, **gradients(model, loss)})
    assert model._captured is not None
    assert 0 < len(model._captured._captured) < len(batches) - 2
    torch.testing.assert_close(found[: len(batches)], found[len(batches) :], rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("composition", ["lstm", "none"])
def test_an_update_starts_few_kernels_whatever_its_trees(composition: str) -> None:
    vocabulary = Tokens(9)
    model = build_model(vocabulary, num_layers=2, composition=composition, dropout=0.1)
    few, many = (as_batch(random_trees(vocabulary, count, seed=5), vocabulary) for count in (9, 60))
    found = num_calls(model, many, captured=True)
    assert found == num_calls(model, few, captured=True) <= 140 < num_calls(model, few) < num_calls(model, many)
